"""Each policy's choice among devices, and who may join at all."""

from __future__ import annotations

import pytest

from labkit.collocation.packing.admission import Admission
from labkit.collocation.packing.device_state import DeviceState, PackingDevice
from labkit.collocation.packing.job_profile import JobProfile, slowdown_by_utilisation
from labkit.collocation.packing.policy import POLICIES, get_policy
from labkit.errors import UserError
from labkit.hardware.device import Device

GIB = 2**30
COLLOCATING = [name for name in POLICIES if name != "exclusive"]


def profile(memory_gib: float, utilisation: float) -> JobProfile:
    return JobProfile(int(memory_gib * GIB), utilisation)


def state(memory_gib: float, *jobs: JobProfile, **seen) -> DeviceState:
    return DeviceState(PackingDevice("a device", int(memory_gib * GIB)), jobs, **seen)


@pytest.mark.parametrize(
    ("policy", "last", "chosen"),
    [
        ("exclusive", -1, None),
        ("round-robin", -1, 0),
        ("round-robin", 0, 1),
        ("round-robin", 2, 0),
        ("most-free-memory", -1, 1),
        ("least-utilised", -1, 2),
        ("best-fit", -1, 0),
    ],
)
def test_each_policy_has_its_own_favourite(policy, last, chosen):
    busy = [
        state(16, profile(12, 0.4)),  # least left after the job
        state(16, profile(2, 0.6)),  # most memory free
        state(16, profile(6, 0.1)),  # least busy
    ]
    assert get_policy(policy).choose(profile(3, 0.2), busy, last=last) == chosen


def test_exclusive_takes_the_first_idle_device():
    assert get_policy("exclusive").choose(profile(1, 0.1), [state(8, profile(1, 0.1)), state(8), state(8)]) == 1


@pytest.mark.parametrize("policy", COLLOCATING)
def test_ties_go_to_the_earlier_device(policy):
    assert get_policy(policy).choose(profile(1, 0.1), [state(8), state(8)]) == 0


@pytest.mark.parametrize("policy", COLLOCATING)
@pytest.mark.parametrize(
    ("device", "why"),
    [
        (state(8, profile(6, 0.1)), "believed memory is short"),
        (state(8, profile(1, 0.1), monitored_free_bytes=2 * GIB), "monitored memory is short"),
        (state(8, profile(1, 0.8)), "it is 80 % busy"),
        (state(8, profile(1, 0.1), monitored_utilisation=0.9), "the monitor says that it is busy"),
        (state(8, closed=True), "it is kept for a recovered job"),
    ],
)
def test_no_policy_puts_a_job_where_it_may_not_go(policy, device, why):
    assert get_policy(policy).choose(profile(3, 0.1), [device]) is None, why


def test_the_margin_stays_free():
    device, job = state(8, profile(4, 0.1)), profile(4, 0.1)
    assert Admission().refusal(job, device, largest_bytes=8 * GIB) is None
    refusal = Admission(margin_bytes=GIB).refusal(job, device, largest_bytes=8 * GIB)
    assert refusal == "needs 4 GiB, and 3 GiB of it is free"


def test_sharing_must_be_worth_it():
    half, whole = profile(1, 0.5), profile(1, 1.0)
    # two halves: throughput doubles; a half and a whole: 2 / 1.5 of a job a second against 1
    admission = Admission(min_gain=0.4)
    assert admission.refusal(half, state(8, half), largest_bytes=8 * GIB) is None
    assert "+33%" in admission.refusal(whole, state(8, half), largest_bytes=8 * GIB)


def test_the_interference_model_decides_what_sharing_is_worth():
    def hostile(profiles):
        return [3.0 if len(profiles) > 1 else 1.0] * len(profiles)

    admission = Admission(slowdown=hostile)
    refusal = admission.refusal(profile(1, 0.1), state(8, profile(1, 0.1)), largest_bytes=8 * GIB)
    assert "-33%" in refusal  # two jobs at a third of their rate
    assert admission.refusal(profile(1, 0.1), state(8), largest_bytes=8 * GIB) is None


def test_a_job_believed_larger_than_any_device_gets_the_largest_alone():
    job, small, large = profile(111.8, 0.5), state(8), state(16)
    policy = get_policy("best-fit")
    assert policy.choose(job, [small, large]) == 1
    assert policy.choose(job, [small, state(16, profile(1, 0.1))]) is None
    assert policy.choose(profile(1, 0.1), [state(16, job)]) is None, "it shared a device that has no memory to spare"


def test_slowdowns_by_utilisation_conserve_work():
    jobs = [profile(1, 0.9), profile(1, 0.6), profile(1, 0.5)]
    slowdowns = slowdown_by_utilisation(jobs)
    assert sum(job.utilisation / slow for job, slow in zip(jobs, slowdowns, strict=True)) == pytest.approx(1)


def test_an_unknown_policy_is_refused_with_the_known_ones():
    with pytest.raises(UserError, match=r"'fifo' is unknown.*exclusive, round-robin"):
        get_policy("fifo")


def test_a_device_without_known_memory_is_refused():
    with pytest.raises(UserError, match="no permission"):
        PackingDevice.of(Device("gpu", 0, "a GPU", "cuda:0", missing={"memory_bytes": "no permission"}))
    known = PackingDevice.of(Device("gpu", 0, "a GPU", "cuda:0", "GPU-1", 8 * GIB))
    assert (known.name, known.memory_bytes) == ("GPU-1", 8 * GIB)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"utilisation": 0.0}, "utilisation is 0"),
        ({"utilisation": 40.0}, "utilisation is 40"),
        ({"duration_s": 0.0}, "duration is 0"),
        ({"duration_s": float("inf")}, "duration is inf"),
        ({"memory_bytes": 0}, "memory_bytes is 0"),
        ({"provenance": "guessed"}, "'guessed' is unknown"),
    ],
)
def test_a_profile_says_which_of_its_fields_is_wrong(fields, message):
    with pytest.raises(UserError, match=message):
        JobProfile(**{"memory_estimate_bytes": GIB, "utilisation": 0.5} | fields)

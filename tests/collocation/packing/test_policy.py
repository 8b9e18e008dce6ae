"""Each policy's choice among devices, and who may join at all."""

from __future__ import annotations

import pytest
from queues import GIB, profile

from labkit.collocation.packing.policy import (
    POLICIES,
    Admission,
    DeviceState,
    PackingDevice,
    cpu_admission,
    get_policy,
    slowdown_by_utilisation,
)
from labkit.errors import UserError

COLLOCATING = [name for name in POLICIES if name != "exclusive"]


def state(memory_gib, *jobs, **seen) -> DeviceState:
    return DeviceState(PackingDevice("a device", int(memory_gib * GIB)), jobs, **seen)


def chosen(policy, *arguments, admission=None, **more):
    return get_policy(policy).choose(*arguments, admission or Admission(), **more)


@pytest.mark.parametrize(
    ("policy", "last", "expected"),
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
def test_each_policy_has_its_own_favourite(policy, last, expected):
    busy = [
        state(16, profile(12, 0.4)),  # least left after the job
        state(16, profile(2, 0.6)),  # most memory free
        state(16, profile(6, 0.1)),  # least busy
    ]
    assert chosen(policy, profile(3, 0.2), busy, last=last) == expected
    # exclusive takes the first idle device, and ties go to the earlier one
    assert chosen(policy, profile(), [state(8), state(8)]) == 0


@pytest.mark.parametrize("policy", COLLOCATING)
@pytest.mark.parametrize(
    ("device", "why"),
    [
        (state(8, profile(6)), "believed memory is short"),
        (state(8, profile(), monitored_free_bytes=2 * GIB), "monitored memory is short"),
        (state(8, profile(1, 0.8)), "it is 80 % busy"),
        (state(8, profile(), monitored_utilisation=0.9), "the monitor says that it is busy"),
        (state(8, closed=True), "it is kept for a recovered job"),
    ],
)
def test_no_policy_puts_a_job_where_it_may_not_go(policy, device, why):
    assert chosen(policy, profile(3), [device]) is None, why


def test_the_margin_stays_free_and_sharing_must_be_worth_it():
    device, job = state(8, profile(4)), profile(4)
    assert Admission().admits(job, device, largest_bytes=8 * GIB)
    assert not Admission(margin_bytes=GIB).admits(job, device, largest_bytes=8 * GIB)
    # two halves double the throughput; two wholes leave it as it is
    half, whole = profile(1, 0.5), profile(1, 1.0)
    assert cpu_admission(slowdown_by_utilisation).admits(half, state(8, half), largest_bytes=8 * GIB)
    assert not cpu_admission(slowdown_by_utilisation).admits(whole, state(8, whole), largest_bytes=8 * GIB)

    def hostile(profiles):
        return [3.0 if len(profiles) > 1 else 1.0] * len(profiles)

    assert not Admission(slowdown=hostile).admits(profile(), state(8, profile()), largest_bytes=8 * GIB)
    assert Admission(slowdown=hostile).admits(profile(), state(8), largest_bytes=8 * GIB)
    # a limit on utilisation is the GPU's
    busy = state(8, profile(1, 0.9))
    assert not Admission(slowdown=lambda jobs: [1.0] * len(jobs)).admits(half, busy, largest_bytes=8 * GIB)
    assert cpu_admission(lambda jobs: [1.0] * len(jobs)).admits(half, busy, largest_bytes=8 * GIB)


def test_a_job_believed_larger_than_any_device_gets_the_largest_alone():
    job, small, large = profile(111.8, 0.5), state(8), state(16)
    assert chosen("best-fit", job, [small, large]) == 1
    assert chosen("best-fit", job, [small, state(16, profile())]) is None
    assert chosen("best-fit", profile(), [state(16, job)]) is None, "it shared a device that has no memory to spare"


def test_an_unknown_policy_is_refused_with_the_known_ones():
    with pytest.raises(UserError, match=r"'fifo' is unknown.*exclusive, round-robin"):
        get_policy("fifo")

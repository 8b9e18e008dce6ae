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
    def admits(admission, job, *running):
        return admission.admits(job, state(8, *running), largest_bytes=8 * GIB)

    assert admits(Admission(), profile(4), profile(4))
    assert not admits(Admission(margin_bytes=GIB), profile(4), profile(4))
    # two halves double the throughput; two wholes leave it as it is
    half, whole, on_cpu = profile(1, 0.5), profile(1, 1.0), cpu_admission(slowdown_by_utilisation)
    assert admits(on_cpu, half, half) and not admits(on_cpu, whole, whole)
    hostile = Admission(slowdown=lambda jobs: [3.0 if len(jobs) > 1 else 1.0] * len(jobs))
    assert admits(hostile, profile()) and not admits(hostile, profile(), profile())
    # a limit on utilisation is the GPU's
    free = {"slowdown": lambda jobs: [1.0] * len(jobs)}
    assert admits(cpu_admission(**free), half, profile(1, 0.9)) and not admits(Admission(**free), half, profile(1, 0.9))


def test_a_job_believed_larger_than_any_device_gets_the_largest_alone():
    job, small, large = profile(111.8, 0.5), state(8), state(16)
    assert chosen("best-fit", job, [small, large]) == 1
    assert chosen("best-fit", job, [small, state(16, profile())]) is None
    assert chosen("best-fit", profile(), [state(16, job)]) is None, "it shared a device that has no memory to spare"
    with pytest.raises(UserError, match=r"'fifo' is unknown.*exclusive, round-robin"):
        get_policy("fifo")

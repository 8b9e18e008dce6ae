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


def state(memory_gib, *jobs, **seen) -> DeviceState:
    return DeviceState(PackingDevice("a device", int(memory_gib * GIB)), jobs, **seen)


def chosen(policy, job, states, **more):
    return get_policy(policy).choose(job, states, Admission(), **more)


def test_each_policy_has_its_own_favourite():
    job, busy = (
        profile(3, 0.2),
        [
            state(16, profile(12, 0.4)),  # least left after the job
            state(16, profile(2, 0.6)),  # most memory free
            state(16, profile(6, 0.1)),  # least busy
        ],
    )
    favourites = {"exclusive": None, "round-robin": 0, "most-free-memory": 1, "least-utilised": 2, "best-fit": 0}
    assert {name: chosen(name, job, busy) for name in POLICIES} == favourites
    assert [chosen("round-robin", job, busy, last=last) for last in (0, 1, 2)] == [1, 2, 0]
    assert {chosen(name, job, [state(8), state(8)]) for name in POLICIES} == {0}, "ties go to the earlier one"


@pytest.mark.parametrize("policy", [name for name in POLICIES if name != "exclusive"])
def test_no_policy_puts_a_job_where_it_may_not_go(policy):
    closed = {
        "believed memory is short": state(8, profile(6)),
        "monitored memory is short": state(8, profile(), monitored_free_bytes=2 * GIB),
        "it is 80 % busy": state(8, profile(1, 0.8)),
        "the monitor says that it is busy": state(8, profile(), monitored_utilisation=0.9),
        "it is kept for a recovered job": state(8, closed=True),
    }
    assert {why: chosen(policy, profile(3), [device]) for why, device in closed.items()} == dict.fromkeys(closed)


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

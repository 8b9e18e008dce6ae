"""The scheduler alone: events in, starts out."""

from __future__ import annotations

import pytest

from labkit.collocation.packing.device_state import PackingDevice
from labkit.collocation.packing.job_profile import JobProfile
from labkit.collocation.packing.policy import get_policy
from labkit.collocation.packing.queued_job import QueuedJob
from labkit.collocation.packing.scheduler import Scheduler
from labkit.collocation.plan.planned_job import PlannedJob
from labkit.errors import UserError

GIB = 2**30


def job(name: str, memory_gib: float = 1, utilisation: float = 0.1) -> QueuedJob:
    return QueuedJob(PlannedJob(name, "dlrm"), 0.0, JobProfile(int(memory_gib * GIB), utilisation))


def devices(*memory_gib: float) -> list[PackingDevice]:
    return [PackingDevice(f"gpu-{number}", int(memory * GIB)) for number, memory in enumerate(memory_gib)]


def opened(jobs: list[QueuedJob], *memory_gib: float, policy: str = "best-fit", **settings) -> Scheduler:
    """A scheduler at whose door all the jobs are."""
    scheduler = Scheduler(jobs, devices(*memory_gib), get_policy(policy), **settings)
    for each in jobs:
        scheduler.arrived(each.name, 0.0)
    return scheduler


def started(scheduler: Scheduler, at_s: float) -> list[tuple[str, int]]:
    return [(start.name, start.device) for start in scheduler.starts(at_s)]


def test_jobs_start_as_they_came_and_where_the_policy_says():
    scheduler = opened([job("a"), job("b"), job("c")], 8, 8, policy="exclusive")
    assert started(scheduler, 0) == [("a", 0), ("b", 1)]
    assert started(scheduler, 1) == []
    scheduler.ended("b", 5, "done")
    assert started(scheduler, 5) == [("c", 1)]
    assert [each.status for each in scheduler.jobs.values()] == ["running", "done", "running"]


def test_a_job_that_has_not_arrived_is_not_started():
    scheduler = Scheduler([job("a"), job("b")], devices(8), get_policy("best-fit"))
    scheduler.arrived("b", 3)
    assert started(scheduler, 3) == [("b", 0)]
    assert scheduler.jobs["a"].status == "expected"


def test_round_robin_goes_on_from_the_device_before():
    scheduler = opened([job(name) for name in "abcd"], 8, 8, 8, policy="round-robin")
    assert started(scheduler, 0) == [("a", 0), ("b", 1), ("c", 2), ("d", 0)]


def test_out_of_memory_means_once_more_alone_and_before_the_queue():
    scheduler = opened([job("a"), job("bad"), job("late", 8)], 8)
    assert started(scheduler, 0) == [("a", 0), ("bad", 0)]
    scheduler.ended("bad", 2, "out of memory")
    assert scheduler.jobs["bad"].status == "recovering"
    assert started(scheduler, 2) == [], "it was started beside another job"
    scheduler.ended("a", 4, "done")
    [start] = scheduler.starts(4)
    assert (start.name, start.attempt, start.alone) == ("bad", 2, True)
    scheduler.ended("bad", 9, "done")
    assert started(scheduler, 9) == [("late", 0)]
    assert not scheduler.finished
    scheduler.ended("late", 10, "done")
    assert scheduler.finished


def test_nobody_joins_a_device_that_waits_for_or_runs_a_recovered_job():
    scheduler = Scheduler([job("a"), job("bad"), job("small")], devices(8), get_policy("best-fit"))
    scheduler.arrived("a", 0)
    scheduler.arrived("bad", 0)
    scheduler.starts(0)
    scheduler.ended("bad", 1, "out of memory")
    scheduler.starts(1)
    scheduler.arrived("small", 2)
    assert started(scheduler, 2) == [], "it joined a device that waits for a recovered job"
    scheduler.ended("a", 3, "done")
    assert started(scheduler, 3) == [("bad", 0)]
    assert started(scheduler, 4) == [], "it joined a recovered job"


def test_other_devices_go_on_while_one_waits_for_a_recovered_job():
    scheduler = opened([job("a"), job("bad"), job("b")], 8, 8, policy="exclusive")
    assert started(scheduler, 0) == [("a", 0), ("bad", 1)]
    scheduler.ended("bad", 1, "out of memory")
    assert started(scheduler, 1) == [("bad", 1)]
    scheduler.ended("a", 2, "done")
    assert started(scheduler, 2) == [("b", 0)]


def test_recovery_takes_the_largest_device():
    scheduler = opened([job("bad", 2)], 4, 16)
    assert started(scheduler, 0) == [("bad", 0)]
    scheduler.ended("bad", 1, "out of memory")
    assert started(scheduler, 1) == [("bad", 1)]


def test_two_jobs_that_ran_out_of_memory_recover_one_after_the_other():
    scheduler = opened([job("a"), job("b")], 8)
    scheduler.starts(0)
    scheduler.ended("a", 1, "out of memory")
    scheduler.ended("b", 1, "out of memory")
    assert started(scheduler, 1) == [("a", 0)]
    scheduler.ended("a", 2, "done")
    assert started(scheduler, 2) == [("b", 0)]


def test_a_second_time_out_of_memory_is_final_and_so_is_any_other_failure():
    scheduler = opened([job("bad"), job("broken")], 8)
    scheduler.starts(0)
    scheduler.ended("broken", 1, "failed")
    scheduler.ended("bad", 1, "out of memory")
    scheduler.starts(1)
    scheduler.ended("bad", 2, "out of memory")
    assert started(scheduler, 2) == []
    assert scheduler.finished
    assert [len(each.attempts) for each in scheduler.jobs.values()] == [2, 1]
    assert {each.status for each in scheduler.jobs.values()} == {"failed"}


@pytest.mark.parametrize("patience", [0, 2])
def test_a_big_job_lets_a_few_pass_and_no_more(patience):
    small = [job(f"s{number}", 2) for number in range(8)]
    scheduler = opened([small[0], job("big", 8), *small[1:]], 8, max_overtaken=patience)
    order = [start.name for start in scheduler.starts(0)]
    now = 0
    while not scheduler.finished:
        now += 1
        running = [each for each in scheduler.jobs.values() if each.status == "running"]
        oldest = min(running, key=lambda each: each.attempts[-1].starts_s)
        scheduler.ended(oldest.name, now, "done")
        order += [start.name for start in scheduler.starts(now)]
    assert order.index("big") == 1 + patience
    assert len(order) == 9


def test_an_observed_shortage_counts_until_a_job_ends_there():
    scheduler = Scheduler([job("liar", 1), job("b", 4)], devices(8), get_policy("best-fit"))
    scheduler.arrived("liar", 0)
    assert started(scheduler, 0) == [("liar", 0)]
    scheduler.observed(0, free_bytes=2 * GIB)
    scheduler.arrived("b", 1)
    assert started(scheduler, 1) == []
    scheduler.ended("liar", 2, "done")
    assert started(scheduler, 2) == [("b", 0)]


def test_what_cannot_be_placed_is_refused_in_one_message_a_fault():
    queue = [job("a"), job("a"), QueuedJob(PlannedJob("b", "dlrm", where="q.yaml, line 7"))]
    with pytest.raises(UserError) as refused:
        Scheduler(queue, [*devices(8), *devices(8)], get_policy("exclusive"))
    lines = str(refused.value).splitlines()
    assert len(lines) == 3
    assert "two devices are named gpu-0" in lines[0]
    assert "two jobs are named a" in lines[1]
    assert lines[2].startswith("q.yaml, line 7: nobody knows what job b asks for")
    with pytest.raises(UserError, match="no device"):
        Scheduler([job("a")], [], get_policy("exclusive"))
    with pytest.raises(UserError, match="no job in the queue"):
        Scheduler([], devices(8), get_policy("exclusive"))

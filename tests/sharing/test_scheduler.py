"""Each policy's choice among devices, and who may join at all; and the scheduler: events in, starts out."""

import pytest
from queues import GIB, devices, job, profile

from labkit.errors import UserError
from labkit.sharing import POLICIES, Admission, DeviceState, PackingDevice, QueuedJob, cpu_admission, get_policy
from labkit.sharing.packing import MAX_OVERTAKEN, Scheduler
from labkit.sharing.queue import TrackedJob, slowdown_by_utilisation


def state(memory_gib, *jobs, **seen) -> DeviceState:
    return DeviceState(PackingDevice("a device", int(memory_gib * GIB)), jobs, **seen)


def chosen(policy, job, states, **more):
    return get_policy(policy).choose(job, states, Admission(), **more)


def test_best_fit_takes_the_device_with_least_left_and_exclusive_an_empty_one():
    job = profile(3, 0.2)
    busy = [state(16, profile(12, 0.4)), state(16, profile(2, 0.6)), state(16, profile(6, 0.1))]
    assert {name: chosen(name, job, busy) for name in POLICIES} == {"exclusive": None, "best-fit": 0}
    assert {chosen(name, job, [state(8), state(8)]) for name in POLICIES} == {0}, "ties go to the earlier one"


def test_no_job_goes_where_it_may_not():
    closed = {
        "believed memory is short": state(8, profile(6)),
        "monitored memory is short": state(8, profile(), monitored_free_bytes=2 * GIB),
        "it is 80 % busy": state(8, profile(1, 0.8)),
        "it is kept for a recovered job": state(8, closed=True),
    }
    assert {why: chosen("best-fit", profile(3), [each]) for why, each in closed.items()} == dict.fromkeys(closed)


def test_sharing_must_be_worth_it():
    def admits(admission, job, *running):
        return bool(admission.open_to(job, [state(8, *running)]))

    assert admits(Admission(), profile(4), profile(4))
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
    with pytest.raises(UserError, match=r"'fifo' is unknown.*exclusive, best-fit"):
        get_policy("fifo")


def opened(jobs: list[QueuedJob], *memory_gib: float, policy: str = "best-fit") -> Scheduler:
    return Scheduler([TrackedJob(each) for each in jobs], devices(*memory_gib), get_policy(policy))


def started(scheduler: Scheduler, at_s: float) -> list[tuple[str, int]]:
    return [(job.name, job.attempts[-1].device) for job in scheduler.starts(at_s)]


def test_jobs_start_as_they_came_and_where_the_policy_says():
    scheduler = opened([job("late", arrives_s=3), job("a"), job("b"), job("c")], 8, 8, policy="exclusive")
    assert started(scheduler, 0) == [("a", 0), ("b", 1)]
    assert started(scheduler, 1) == []
    assert (scheduler.jobs["late"].status, scheduler.next_arrival_s(1)) == ("queued", 3)
    scheduler.ended("b", 5, "done")
    assert started(scheduler, 5) == [("c", 1)]
    assert [each.status for each in scheduler.jobs.values()] == ["queued", "running", "done", "running"]


def test_out_of_memory_means_once_more_alone_and_before_the_queue():
    scheduler = opened([job("a"), job("bad"), job("large", memory_gib=8), job("small", arrives_s=3)], 8)
    assert started(scheduler, 0) == [("a", 0), ("bad", 0)]
    scheduler.ended("bad", 2, "out of memory")
    assert scheduler.jobs["bad"].status == "recovering"
    assert started(scheduler, 3) == [], "a job joined a device that waits for a recovered job"
    scheduler.ended("a", 4, "done")
    [again] = scheduler.starts(4)
    assert (again.name, again.attempts[-1].number, again.attempts[-1].alone) == ("bad", 2, True)
    assert started(scheduler, 5) == [], "a job joined a recovered job"
    scheduler.ended("bad", 9, "done")
    assert started(scheduler, 9) == [("large", 0)]
    scheduler.ended("large", 10, "done")
    assert started(scheduler, 10) == [("small", 0)]
    assert not scheduler.finished
    scheduler.ended("small", 11, "done")
    assert scheduler.finished


def test_recovery_takes_the_largest_device_in_turn_once_and_other_devices_go_on():
    scheduler = opened([job("a"), job("bad", memory_gib=2), job("b")], 4, 16, policy="exclusive")
    assert started(scheduler, 0) == [("a", 0), ("bad", 1)]
    scheduler.ended("bad", 1, "out of memory")
    assert started(scheduler, 1) == [("bad", 1)]
    scheduler.ended("a", 2, "out of memory")
    assert started(scheduler, 2) == [("b", 0)], "a waits for the largest"
    scheduler.ended("bad", 3, "out of memory")
    assert started(scheduler, 3) == [("a", 1)]
    scheduler.ended("a", 4, "done")
    scheduler.ended("b", 4, "failed", "as asked")
    assert scheduler.finished
    assert [len(each.attempts) for each in scheduler.jobs.values()] == [2, 2, 1]
    assert [each.status for each in scheduler.jobs.values()] == ["done", "failed", "failed"]


def test_a_big_job_lets_a_few_pass_and_no_more():
    small = [job(f"s{number}", memory_gib=2) for number in range(8)]
    scheduler = opened([small[0], job("big", memory_gib=8), *small[1:]], 8)
    order, now = [each.name for each in scheduler.starts(0)], 0
    while not scheduler.finished:
        now += 1
        running = [each for each in scheduler.jobs.values() if each.status == "running"]
        scheduler.ended(min(running, key=lambda each: each.attempts[-1].starts_s).name, now, "done")
        order += [each.name for each in scheduler.starts(now)]
    assert order.index("big") == 1 + MAX_OVERTAKEN
    assert len(order) == 9


def test_an_observed_shortage_counts_until_a_job_ends_there():
    scheduler = opened([job("liar"), job("b", memory_gib=4, arrives_s=1)], 8)
    assert started(scheduler, 0) == [("liar", 0)]
    scheduler.monitored_free_bytes[0] = 2 * GIB
    assert started(scheduler, 1) == []
    scheduler.ended("liar", 2, "done")
    assert started(scheduler, 2) == [("b", 0)]

"""Each policy's choice among devices; the scheduler: events in, starts out; the simulator and its laws."""

import itertools

import pytest
from hypothesis import given, settings, strategies as st
from queues import GIB, devices, job, profile

from labkit.errors import UserError
from labkit.jobs import DlrmJob
from labkit.launch import PlannedJob
from labkit.sharing import (
    POLICIES,
    Admission,
    DeviceState,
    JobProfile,
    PackingDevice,
    QueuedJob,
    cpu_admission,
    get_policy,
    simulate,
)
from labkit.sharing.packing import ALLOCATES_AT, MAX_OVERTAKEN, Scheduler
from labkit.sharing.queue import TrackedJob, slowdown_by_utilisation
from labkit_course.apparatus import OwnPolicy


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
    return Scheduler([TrackedJob(each) for each in jobs], devices(*memory_gib), get_policy(policy), Admission())


def started(scheduler: Scheduler, at_s: float) -> list[tuple[str, int]]:
    return [(job.name, job.attempts[-1].device) for job in scheduler.starts(at_s)]


def test_jobs_start_as_they_came_and_where_the_policy_says():
    scheduler = opened([job("late", arrives_s=3), job("a"), job("b"), job("c")], 8, 8, policy="exclusive")
    assert started(scheduler, 0) == [("a", 0), ("b", 1)]
    assert started(scheduler, 1) == []
    assert scheduler.jobs["late"].status == "queued"
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


def crowded(profiles):
    """Neighbours cost time whatever they do, and small jobs suffer most: no work is conserved here."""
    return [1 + 0.6 * (len(profiles) - 1) * (1.2 - profile.utilisation) for profile in profiles]


@st.composite
def queues(draw):
    sizes, arrivals = st.integers(1, 12), st.sampled_from([0.0, 0.0, 7.0]) | st.floats(0, 500)
    rows = draw(
        st.lists(st.tuples(st.floats(1, 1000), sizes, st.floats(0.01, 1), arrivals, sizes), min_size=1, max_size=14)
    )
    return [
        job(f"job-{number}", *asked, arrives_s=arrives_s, estimate_gib=estimate_gib)
        for number, (*asked, arrives_s, estimate_gib) in enumerate(rows)
    ]


def done_work(there, profiles, slowdown):
    """Walk a device from event to event, on its own: by attempt, the work done, and when it took its memory."""
    work, allocated_s = dict.fromkeys(there, 0.0), {}
    marks = sorted({row.starts_s for row in there} | {row.ends_s for row in there})
    for begin, end in itertools.pairwise(marks):
        here = [row for row in there if row.starts_s <= begin and row.ends_s >= end]
        for row, rate in zip(here, slowdown([profiles[row.job] for row in here]), strict=True):
            before, goal = work[row], ALLOCATES_AT * profiles[row.job].duration_s
            work[row] += (end - begin) / rate
            if before < goal <= work[row] * (1 + 1e-9):
                allocated_s[row] = begin + (goal - before) * rate
    return work, allocated_s


@settings(max_examples=100, deadline=None)
@given(
    queue=queues(),
    memory_gib=st.lists(st.integers(6, 14), min_size=1, max_size=3),
    policy=st.sampled_from(list(POLICIES)),
    slowdown=st.sampled_from([slowdown_by_utilisation, crowded]),
)
def test_every_schedule_obeys_the_laws(queue, memory_gib, policy, slowdown):
    pool = devices(*memory_gib)
    schedule = simulate(queue, pool, get_policy(policy), slowdown=slowdown)
    profiles, attempts, jobs = {each.name: each.profile for each in queue}, schedule.attempts, schedule.jobs

    # every job ends exactly once, after one attempt, or two of which the first ran out of memory
    assert list(jobs["job"]) == [each.name for each in queue] and set(attempts["job"]) == set(jobs["job"])
    for name, status in zip(jobs["job"], jobs["status"], strict=True):
        endings = list(attempts[attempts["job"] == name].sort_values("attempt")["ending"])
        assert endings in (["done"], ["out of memory", "done"], ["out of memory"] * 2)
        assert status == ("done" if endings[-1] == "done" else "failed")
        assert status == "done" or profiles[name].memory_bytes > max(memory_gib) * GIB
    assert (attempts["starts_s"] >= attempts["queued_s"]).all()
    assert (jobs["slowdown"].dropna() >= 1 - 1e-9).all()

    for position, device in enumerate(pool):
        there = list(attempts[attempts["device"] == f"gpu-{position}"].itertuples())
        # work is conserved: what a job got done is its time times the rate that its neighbours left it
        work, allocated_s = done_work(there, profiles, slowdown)
        for row in there:
            whole_s = profiles[row.job].duration_s * (1 if row.ending == "done" else ALLOCATES_AT)
            # a microsecond: two events closer than that may change places by rounding
            assert work[row] == pytest.approx(whole_s, rel=1e-6, abs=1e-6)
        # in truth no device holds more than it has
        done = [row for row in there if row.ending == "done"]
        for moment in (allocated_s[row] for row in done):
            held = [row for row in done if allocated_s[row] <= moment + 1e-6 and moment < row.ends_s - 1e-6]
            assert sum(profiles[row.job].memory_bytes for row in held) <= device.memory_bytes
        # alone means alone: under exclusive, and after running out of memory
        for one, other in itertools.combinations(there, 2):
            if policy == "exclusive" or one.alone or other.alone:
                assert min(one.ends_s, other.ends_s) - max(one.starts_s, other.starts_s) <= 1e-9


def test_exclusive_takes_turns_and_who_shares_is_slowed_only_while_together():
    queue = [job("a", 100, utilisation=0.5), job("b", 60, utilisation=0.5)]
    alone = simulate(queue, devices(8), get_policy("exclusive"))
    assert alone.totals["makespan_s"] == pytest.approx(160) and list(alone.jobs["wait_s"]) == [0, 100]
    queue = [job("a", 100, utilisation=0.7), job("b", 50, utilisation=0.8, arrives_s=10)]
    shared = simulate(queue, devices(8), get_policy("best-fit"))
    # from 10 s on both run at 1/1.5: b needs 75 s, in which a does 50; a has 40 left, at full rate
    assert list(shared.jobs["ends_s"]) == pytest.approx([125, 85])
    assert list(shared.jobs["slowdown"]) == pytest.approx([1.25, 1.5])
    # an end frees its device for who comes at that moment
    queue = [job("a", 10, 8), job("b", 100, 4), job("c", 10, 8, arrives_s=10)]
    schedule = simulate(queue, devices(8, 8), get_policy("best-fit"))
    assert list(schedule.jobs["device"]) == ["gpu-0", "gpu-1", "gpu-0"]


def test_an_underestimated_job_dies_alone_and_recovers_alone():
    queue = [job("good", 100, 6), job("liar", 100, 6, estimate_gib=1)]
    schedule = simulate(queue, devices(8), get_policy("best-fit"))
    good, liar = schedule.jobs.itertuples(index=False)
    assert (good.status, good.oom, good.attempts, good.slowdown) == ("done", False, 1, pytest.approx(1))
    assert (liar.status, liar.oom, liar.attempts) == ("done", True, 2)
    died = schedule.attempts[schedule.attempts["ending"] == "out of memory"].iloc[0]
    assert died["ends_s"] == pytest.approx(100 * ALLOCATES_AT)
    assert (liar.starts_s, liar.ends_s) == (pytest.approx(100), pytest.approx(200))
    # it waited from its end out of memory until the other was done
    assert liar.wait_s == pytest.approx(95)
    assert schedule.totals["ooms"] == 1


def test_overestimates_cost_time_and_a_profile_without_truth_cannot_be_simulated():
    spans = []
    for estimate_gib in (2, 112):
        queue = [job(f"job-{n}", 100, 2, estimate_gib=estimate_gib) for n in range(3)]
        spans.append(simulate(queue, devices(8), get_policy("best-fit")).totals["makespan_s"])
    assert spans == pytest.approx([100, 300])
    queue = [QueuedJob(PlannedJob("a", DlrmJob(), where="q.yaml, line 3"), 0.0, JobProfile(GIB, 0.5))]
    with pytest.raises(UserError, match="line 3: the profile of a has no memory"):
        simulate(queue, devices(8), get_policy("exclusive"))


def test_a_policy_of_ones_own_sees_free_memory_and_utilisations_and_nothing_of_a_closed_device():
    seen = []

    def place(need, busy, places):
        seen.append((need, busy, places))
        return next((n for n, (free, _) in enumerate(places) if free >= need), None)

    # b takes 6 GiB and not 1, so that a runs out and waits for the device alone; c comes meanwhile
    queue = [job("a", 100, 6, 0.5), job("b", 50, 6, 0.25, estimate_gib=1), job("c", 10, arrives_s=20)]
    found = simulate(queue, devices(8), OwnPolicy("first", place))
    assert seen[1] == (GIB, 0.25, [(2 * GIB, [0.5])])
    assert found.totals["ooms"] == 1 and found.totals["done"] == 3
    assert seen[2] == (GIB, 0.1, [(0, [0.25])]), "closed: no memory"

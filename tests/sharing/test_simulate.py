"""The simulator: laws that every schedule obeys, and schedules that can be worked out by hand."""

import itertools

import pytest
from hypothesis import given, settings, strategies as st
from queues import GIB, devices, job

from labkit.errors import UserError
from labkit.jobs import DlrmJob
from labkit.launch import PlannedJob
from labkit.sharing import POLICIES, JobProfile, QueuedJob, get_policy, simulate
from labkit.sharing.packing import ALLOCATES_AT
from labkit.sharing.queue import slowdown_by_utilisation
from labkit_course.apparatus import OwnPolicy


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

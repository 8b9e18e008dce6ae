"""Replays a queue on devices that need not be here, in the time it takes to add up numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas as pd

from labkit.collocation.packing.policy import (
    POLICIES,
    Admission,
    PackingDevice,
    Policy,
    Slowdown,
    get_policy,
    slowdown_by_utilisation,
)
from labkit.collocation.packing.queue import QueuedJob, TrackedJob
from labkit.collocation.packing.schedule import Schedule, schedule_of, side_by_side
from labkit.collocation.packing.scheduler import Scheduler
from labkit.errors import UserError

ALLOCATES_AT = 0.05
"""Share of a job's work after which it has its peak memory: our choice. Training reaches it in its first steps, but
loads its data before; until then a monitor sees nothing of it."""
CARMA_MAKESPAN, CARMA_ENERGY = 0.65, 0.85
"""Its best policy over exclusive: about 35 % less makespan and 15 % less energy (arXiv 2508.19073, abstract), on its
own trace of real jobs on GPUs: not a number to meet with other jobs on other devices."""


def simulate(
    queue: Sequence[QueuedJob],
    devices: Sequence[PackingDevice],
    policy: Policy,
    *,
    slowdown: Slowdown = slowdown_by_utilisation,
    admission: Admission | None = None,
) -> Schedule:
    """Run a queue in simulated time; the same input gives the same schedule.

    A job beside others progresses at 1/slowdown of its rate alone, and the slowdowns of a device are computed anew
    whenever a job starts or ends there. A job takes its true peak memory at once, at `ALLOCATES_AT` of its work. Where
    that does not fit beside what the others have taken, it runs out of memory and ends, and only it.

    Args:
        queue: jobs whose profiles have a duration and a true memory.
        devices: what they run on.
        policy: who goes where.
        slowdown: what sharing really does in this simulated world.
        admission: preconditions of the scheduler; by default it believes in `slowdown` itself.

    Raises:
        UserError: a job without a profile, or without a duration or a memory in it.
    """
    _check_profiles(queue)
    scheduler = Scheduler(queue, devices, policy, admission or Admission(slowdown=slowdown))
    running: list[_RunningJob] = []
    now_s = 0.0
    while running or scheduler.next_arrival_s is not None:
        arrives_s = math.inf if scheduler.next_arrival_s is None else scheduler.next_arrival_s
        job = min(running, key=lambda each: each.ahead_s, default=None)
        # an end before an arrival of the same moment: what it frees is there for the newcomer
        passed_s = arrives_s - now_s
        if job is not None and job.ahead_s <= passed_s:
            passed_s = job.ahead_s
        else:
            job = None
        for each in running:
            # one that comes to its milestone does so exactly, whatever rounding says
            done_s = each.work_s + passed_s / each.slowdown
            each.work_s = each.milestone_s if each is job else min(each.milestone_s, done_s)
        now_s += passed_s
        if job is None:
            scheduler.let_arrive(now_s)
        elif job.taken_bytes:
            running.remove(job)
            scheduler.ended(job.tracked.name, now_s, "done")
        elif job.tracked.profile.memory_bytes <= _free_bytes(running, devices)[job.device]:
            job.taken_bytes, job.milestone_s = job.tracked.profile.memory_bytes, job.tracked.profile.duration_s
        else:
            running.remove(job)
            scheduler.ended(job.tracked.name, now_s, "out of memory")
        for position, free_bytes in enumerate(_free_bytes(running, devices)):
            scheduler.observed(position, monitored_free_bytes=free_bytes)
        running += [_RunningJob(job, ALLOCATES_AT * job.profile.duration_s) for job in scheduler.starts(now_s)]
        for position in range(len(devices)):
            here = [each for each in running if each.device == position]
            slowdowns = slowdown([each.tracked.profile for each in here]) if here else []
            for each, times in zip(here, slowdowns, strict=True):
                each.slowdown = times
    assert scheduler.finished, "a job was never started"
    return schedule_of(policy.name, "predicted", list(scheduler.jobs.values()), devices, "a simulation knows no power")


@dataclass(frozen=True)
class PackReport:
    """Frames of a comparison; every number in them is predicted."""

    totals: pd.DataFrame
    """One row a policy, `exclusive` first, as `side_by_side` has them: ratios are to exclusive"""
    schedule: pd.DataFrame
    """One row a start of a job, for a Gantt figure: policy and ATTEMPT_COLUMNS"""


def pack_report(
    queue: Sequence[QueuedJob],
    devices: Sequence[PackingDevice],
    policies: Iterable[str] = tuple(POLICIES),
    **settings,
) -> PackReport:
    """Simulate a queue under several policies, `exclusive` first, named or not; `settings` are those of `simulate`."""
    names = list(dict.fromkeys(["exclusive", *policies]))
    schedules = [simulate(queue, devices, get_policy(name), **settings) for name in names]
    attempts = pd.concat([each.attempts.assign(policy=each.policy) for each in schedules], ignore_index=True)
    return PackReport(side_by_side(schedules), attempts)


def _check_profiles(queue: Sequence[QueuedJob]) -> None:
    faults = []
    for job in queue:
        if job.profile is None:
            faults.append(f"{job.place}: nobody knows what job {job.name} asks for: give it memory and utilisation.")
            continue
        known = {"duration": job.profile.duration_s, "memory": job.profile.memory_bytes}
        if missing := [what for what, value in known.items() if value is None]:
            what = " and no ".join(missing)
            faults.append(f"{job.place}: the profile of {job.name} has no {what}: run the job once alone, or write it.")
    if faults:
        raise UserError("\n".join(faults))


@dataclass(eq=False)
class _RunningJob:
    """A job in the simulated world, which knows the truth."""

    tracked: TrackedJob
    milestone_s: float
    """Work at which something happens to it next: it takes its memory, or it is done"""
    work_s: float = 0.0
    """Done so far, in seconds of the job alone"""
    slowdown: float = 1.0
    taken_bytes: int = 0

    @property
    def device(self) -> int:
        return self.tracked.attempts[-1].device

    @property
    def ahead_s(self) -> float:
        """Until its milestone."""
        return (self.milestone_s - self.work_s) * self.slowdown


def _free_bytes(running: Sequence[_RunningJob], devices: Sequence[PackingDevice]) -> list[int]:
    """What the jobs on each device have really left of its memory."""
    return [
        device.memory_bytes - sum(job.taken_bytes for job in running if job.device == position)
        for position, device in enumerate(devices)
    ]

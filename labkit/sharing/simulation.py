"""Replays a queue on devices that need not be here, in the time it takes to add up numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas as pd

from labkit import UserError
from labkit.sharing.policies import (
    POLICIES,
    Admission,
    Chooser,
    PackingDevice,
    Schedule,
    Scheduler,
    get_policy,
    schedule_of,
    side_by_side,
)
from labkit.sharing.queue import QueuedJob, Slowdown, TrackedJob, slowdown_by_utilisation

ALLOCATES_AT = 0.05
"""Share of a job's work after which it has its peak memory: our choice. Training reaches it in its first steps, but
loads its data before; until then a monitor sees nothing of it."""
CARMA_MAKESPAN, CARMA_ENERGY = 0.65, 0.85
"""Its best policy over exclusive: about 35 % less makespan and 15 % less energy (arXiv 2508.19073, abstract), on its
own trace of real jobs on GPUs: not a number to meet with other jobs on other devices."""


def simulate(
    queue: Sequence[QueuedJob],
    devices: Sequence[PackingDevice],
    policy: Chooser,
    *,
    slowdown: Slowdown = slowdown_by_utilisation,
    admission: Admission | None = None,
) -> Schedule:
    """Run a queue in simulated time; the same input gives the same schedule.

    A job next to others progresses at 1/slowdown of its rate alone, and the slowdowns of a device are computed again
    whenever a job starts or ends there. A job takes its true peak memory at once, at `ALLOCATES_AT` of its work. Where
    that does not fit next to what the others have taken, it runs out of memory and ends, and only it.

    Args:
        queue: jobs whose profiles have a duration and a true memory.
        devices: what they run on.
        policy: who goes where.
        slowdown: what sharing really does in this simulated world.
        admission: who may join whom; by default the scheduler believes in `slowdown` itself.
    """
    _check_profiles(queue)
    jobs, world = [TrackedJob(each) for each in queue], _SimulatedDevices(devices, slowdown)
    scheduler = Scheduler(jobs, devices, policy, admission or Admission(slowdown=slowdown))
    while not scheduler.finished:
        scheduler.let_arrive(world.now_s)
        for position in range(len(devices)):
            scheduler.observed(position, monitored_free_bytes=world.free_bytes(position))
        for job in scheduler.starts(world.now_s):
            world.start(job)
        for name, ending in world.endings(scheduler.next_arrival_s):
            scheduler.ended(name, world.now_s, ending)
    return schedule_of(policy.name, "predicted", jobs, devices, "a simulation knows no power")


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


class _SimulatedDevices:
    """Devices of a simulated world, and their clock."""

    def __init__(self, devices: Sequence[PackingDevice], slowdown: Slowdown):
        self.now_s, self._devices, self._slowdown = 0.0, devices, slowdown
        self._running: list[_RunningJob] = []

    def _on(self, position: int) -> list[_RunningJob]:
        return [each for each in self._running if each.device == position]

    def free_bytes(self, position: int) -> int:
        """What the jobs on a device have really left of its memory."""
        return self._devices[position].memory_bytes - sum(each.taken_bytes for each in self._on(position))

    def start(self, job: TrackedJob) -> None:
        self._running.append(_RunningJob(job, ALLOCATES_AT * job.profile.duration_s))
        self._set_slowdowns(job.attempts[-1].device)

    def _set_slowdowns(self, position: int) -> None:
        here = self._on(position)
        for each, times in zip(here, self._slowdown([each.tracked.profile for each in here]), strict=True):
            each.slowdown = times

    def endings(self, until_s: float | None) -> list[tuple[str, str]]:
        """Let time pass until something happens, or a job comes: name and ending of the jobs that ended."""
        assert self._running or until_s is not None, "a job was never started"
        arrives_s = math.inf if until_s is None else until_s
        job = min(self._running, key=lambda each: each.ahead_s, default=None)
        # an end before an arrival of the same moment: what it frees is there for the newcomer
        if job is not None and self.now_s + job.ahead_s > arrives_s:
            job = None
        passed_s = arrives_s - self.now_s if job is None else job.ahead_s
        for each in self._running:
            # one that comes to its milestone does so exactly, whatever rounding says
            done_s = each.work_s + passed_s / each.slowdown
            each.work_s = each.milestone_s if each is job else min(each.milestone_s, done_s)
        self.now_s = arrives_s if job is None else self.now_s + passed_s
        if job is None:
            return []
        truth, ending = job.tracked.profile, "done"
        assert truth is not None and truth.memory_bytes is not None and truth.duration_s is not None  # checked
        if not job.taken_bytes:
            if truth.memory_bytes <= self.free_bytes(job.device):
                job.taken_bytes, job.milestone_s = truth.memory_bytes, truth.duration_s
                return []
            ending = "out of memory"
        self._running.remove(job)
        self._set_slowdowns(job.device)
        return [(job.tracked.name, ending)]


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
            faults.append(f"{job.place}: memory and utilisation of job {job.name} are unknown: give both.")
        elif None in (job.profile.duration_s, job.profile.memory_bytes):
            what = "memory" if job.profile.memory_bytes is None else "duration"
            faults.append(f"{job.place}: the profile of {job.name} has no {what}: run the job once alone, or write it.")
    if faults:
        raise UserError("\n".join(faults))

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
    world = _World(devices, slowdown)
    now_s = 0.0
    while world.running or scheduler.next_arrival_s is not None:
        arrives_s = math.inf if scheduler.next_arrival_s is None else scheduler.next_arrival_s
        next_s, job = world.next_event(now_s)
        # an end before an arrival of the same moment: what it frees is there for the newcomer
        if job is None or arrives_s < next_s:
            next_s, job = arrives_s, None
        world.advance(next_s - now_s, job)
        now_s = next_s
        if job is None:
            scheduler.let_arrive(now_s)
        elif ending := world.settle(job):
            scheduler.ended(job.tracked.name, now_s, ending)
        for position in range(len(devices)):
            scheduler.observed(position, monitored_free_bytes=world.free_bytes(position))
        for started in scheduler.starts(now_s):
            world.start(started)
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
    """Simulate a queue under several policies.

    Args:
        queue: jobs with profiles.
        devices: what they run on.
        policies: their names; `exclusive` comes first, named or not.
        settings: of `simulate`.
    """
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
    device: int
    milestone_s: float
    """Work at which something happens to it next: it takes its memory, or it is done"""
    work_s: float = 0.0
    """Done so far, in seconds of the job alone"""
    slowdown: float = 1.0
    taken_bytes: int = 0

    @property
    def ahead_s(self) -> float:
        """Until its milestone."""
        return (self.milestone_s - self.work_s) * self.slowdown


class _World:
    """Jobs that run, their progress, and the memory that they really hold."""

    def __init__(self, devices: Sequence[PackingDevice], slowdown: Slowdown):
        self.running: list[_RunningJob] = []
        self._devices, self._slowdown = devices, slowdown

    def start(self, tracked: TrackedJob) -> None:
        device = tracked.attempts[-1].device
        self.running.append(_RunningJob(tracked, device, ALLOCATES_AT * tracked.profile.duration_s))
        self._slow(device)

    def next_event(self, now_s: float) -> tuple[float, _RunningJob | None]:
        """When something happens to a running job, and to which; to the one that started first among equals."""
        job = min(self.running, key=lambda each: each.ahead_s, default=None)
        return (now_s, None) if job is None else (now_s + job.ahead_s, job)

    def advance(self, passed_s: float, reached: _RunningJob | None) -> None:
        """Let time pass; `reached` comes to its milestone exactly, whatever rounding says."""
        for job in self.running:
            job.work_s = min(job.milestone_s, job.work_s + passed_s / job.slowdown)
        if reached is not None:
            reached.work_s = reached.milestone_s

    def settle(self, job: _RunningJob) -> str | None:
        """What its milestone does to a job: its ending, or None where it goes on with its memory taken."""
        ending, profile = "done", job.tracked.profile
        if not job.taken_bytes:
            if profile.memory_bytes <= self.free_bytes(job.device):
                job.taken_bytes, job.milestone_s = profile.memory_bytes, profile.duration_s
                return None
            ending = "out of memory"
        self.running.remove(job)
        self._slow(job.device)
        return ending

    def free_bytes(self, device: int) -> int:
        """What the jobs on a device have really left of its memory."""
        taken = sum(job.taken_bytes for job in self.running if job.device == device)
        return self._devices[device].memory_bytes - taken

    def _slow(self, device: int) -> None:
        """Compute the slowdowns of a device anew."""
        here = [job for job in self.running if job.device == device]
        slowdowns = self._slowdown([job.tracked.profile for job in here]) if here else []
        for job, slowdown in zip(here, slowdowns, strict=True):
            job.slowdown = slowdown

"""Replays a queue on devices that need not be here, in the time it takes to add up numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from labkit.collocation.packing.admission import Admission, Slowdown
from labkit.collocation.packing.device_state import PackingDevice
from labkit.collocation.packing.job_profile import JobProfile, slowdown_by_utilisation
from labkit.collocation.packing.policy import Policy
from labkit.collocation.packing.queued_job import QueuedJob
from labkit.collocation.packing.schedule import Schedule, predicted_schedule
from labkit.collocation.packing.scheduler import MAX_OVERTAKEN, Scheduler, Start
from labkit.errors import UserError

ALLOCATES_AT = 0.05
"""Share of a job's work after which it has its peak memory: our choice. Training reaches it in its first steps, but
loads its data before; until then a monitor sees nothing of it."""


def simulate(
    queue: Sequence[QueuedJob],
    devices: Sequence[PackingDevice],
    policy: Policy,
    *,
    slowdown: Slowdown = slowdown_by_utilisation,
    admission: Admission | None = None,
    max_overtaken: int = MAX_OVERTAKEN,
    allocates_at: float = ALLOCATES_AT,
) -> Schedule:
    """Run a queue in simulated time; the same input gives the same schedule.

    A job beside others progresses at 1/slowdown of its rate alone, and the slowdowns of a device are computed anew
    whenever a job starts or ends there. A job takes its true peak memory at once, at `allocates_at` of its work. Where
    that does not fit beside what the others have taken, it runs out of memory and ends, and only it.

    Args:
        queue: jobs whose profiles have a duration and a true memory.
        devices: what they run on.
        policy: who goes where.
        slowdown: what sharing really does in this simulated world.
        admission: preconditions of the scheduler; by default its prediction of the interference is `slowdown` itself.
        max_overtaken: how many later jobs may pass one that waits.
        allocates_at: above 0 and up to 1.

    Raises:
        UserError: a queue that no scheduler can place, or a profile without a duration or a memory.
    """
    _check_profiles(queue)
    if not 0 < allocates_at <= 1:
        raise UserError(f"allocates_at is {allocates_at:g}: give a share of the work above 0 and up to 1.")
    admission = admission or Admission(slowdown=slowdown)
    scheduler = Scheduler(queue, devices, policy, admission=admission, max_overtaken=max_overtaken)
    world = _World(devices, slowdown, allocates_at)
    # a stable sort: jobs that come together stay in the order of the file
    arrivals = sorted(queue, key=lambda job: job.arrives_s)
    now_s, arrived = 0.0, 0
    while arrived < len(arrivals) or world.running:
        next_s, job = world.next_event(now_s)
        # an end before an arrival of the same moment: what it frees is there for the newcomer
        if job is None or (arrived < len(arrivals) and arrivals[arrived].arrives_s < next_s):
            next_s, job = arrivals[arrived].arrives_s, None
        world.advance(next_s - now_s, job)
        now_s = next_s
        if job is None:
            while arrived < len(arrivals) and arrivals[arrived].arrives_s == now_s:
                scheduler.arrived(arrivals[arrived].name, now_s)
                arrived += 1
        elif ending := world.settle(job):
            scheduler.ended(job.name, now_s, ending, work_s=job.work_s)
        for position in range(len(devices)):
            scheduler.observed(position, free_bytes=world.free_bytes(position))
        for start in scheduler.starts(now_s):
            world.start(start, scheduler.jobs[start.name].queued.profile)
    assert scheduler.finished, "a job was never started"
    return predicted_schedule(policy.name, list(scheduler.jobs.values()), devices)


def _check_profiles(queue: Sequence[QueuedJob]) -> None:
    faults = [
        f"{job.job.where or job.name}: the profile of {job.name} has no {what}: run the job once alone, or write it."
        for job in queue
        if job.profile is not None
        for what, value in (("duration", job.profile.duration_s), ("memory", job.profile.memory_bytes))
        if value is None
    ]
    if faults:
        raise UserError("\n".join(faults))


@dataclass(eq=False)
class _RunningJob:
    """A job in the simulated world, which knows the truth."""

    name: str
    device: int
    profile: JobProfile
    milestone_s: float
    """Work at which something happens to it next: it takes its memory, or it is done"""
    work_s: float = 0.0
    """Done so far, in seconds of the job alone"""
    slowdown: float = 1.0
    taken_bytes: int = 0


class _World:
    """Jobs that run, their progress, and the memory that they really hold."""

    def __init__(self, devices: Sequence[PackingDevice], slowdown: Slowdown, allocates_at: float):
        self.running: list[_RunningJob] = []
        self._devices = devices
        self._slowdown = slowdown
        self._allocates_at = allocates_at

    def start(self, start: Start, profile: JobProfile) -> None:
        first_s = self._allocates_at * profile.duration_s
        self.running.append(_RunningJob(start.name, start.device, profile, first_s))
        self._slow(start.device)

    def next_event(self, now_s: float) -> tuple[float, _RunningJob | None]:
        """When something happens to a running job, and to which; to the one that started first among equals."""
        ahead = [(job.milestone_s - job.work_s) * job.slowdown for job in self.running]
        if not ahead:
            return now_s, None
        soonest = min(range(len(ahead)), key=ahead.__getitem__)
        return now_s + ahead[soonest], self.running[soonest]

    def advance(self, passed_s: float, reached: _RunningJob | None) -> None:
        """Let time pass; `reached` comes to its milestone exactly, whatever rounding says."""
        for job in self.running:
            job.work_s = min(job.milestone_s, job.work_s + passed_s / job.slowdown)
        if reached is not None:
            reached.work_s = reached.milestone_s

    def settle(self, job: _RunningJob) -> str | None:
        """What its milestone does to a job: its ending, or None where it goes on with its memory taken."""
        ending = "done"
        if not job.taken_bytes:
            if job.profile.memory_bytes <= self.free_bytes(job.device):
                job.taken_bytes = job.profile.memory_bytes
                job.milestone_s = job.profile.duration_s
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
        if not here:
            return
        for job, slowdown in zip(here, self._slowdown([job.profile for job in here]), strict=True):
            assert slowdown > 0, f"a slowdown of {slowdown}"
            job.slowdown = slowdown

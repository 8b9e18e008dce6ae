"""Which job of a queue goes where: admission, two policies, the scheduler, and its simulation."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import pandas as pd

from labkit import UserError, errors
from labkit.sharing.queue import (
    Attempt,
    JobProfile,
    PackingDevice,
    QueuedJob,
    Slowdown,
    TrackedJob,
    slowdown_by_utilisation,
)
from labkit.sharing.schedule import Schedule, schedule_of, side_by_side

BUSIEST = 0.8
"""A GPU this busy takes no other job: CARMA's 80 % of SM activity"""
MIN_GAIN = 0.05
"""Share by which the throughput of a device has to grow for another job to join: our choice"""
MAX_OVERTAKEN = 4
"""Our choice between a device left idle (0: first come, first served, as in CARMA) and a big job left waiting"""
ALLOCATES_AT = 0.05
"""Share of a job's work after which it has its peak memory: our choice. Training reaches it in its first steps, but
loads its data before; until then a monitor sees nothing of it."""
CARMA_MAKESPAN, CARMA_ENERGY = 0.65, 0.85
"""Its best policy over exclusive: about 35 % less makespan and 15 % less energy (arXiv 2508.19073, abstract), on its
own trace of real jobs on GPUs: not a number to meet with other jobs on other devices."""


@dataclass(frozen=True)
class DeviceState:
    """One device at one moment, as known to a policy: estimates, and what a monitor has seen; never the truth.

    A job that has just started is in the belief but not yet in the monitor's reading; one that was underestimated is in
    the reading but not in the belief. So the worse of the two counts.
    """

    device: PackingDevice
    profiles: tuple[JobProfile, ...] = ()
    """Profiles of the jobs that run on it"""
    closed: bool = False
    """Whether a recovered job has it, or waits for it, alone"""
    monitored_free_bytes: float = math.inf
    """Free memory in the last reading"""

    @property
    def free_bytes(self) -> float:
        believed = self.device.memory_bytes - sum(profile.memory_estimate_bytes for profile in self.profiles)
        return min(believed, self.monitored_free_bytes)


@dataclass(frozen=True)
class Admission:
    """The preconditions that both policies share; a policy then picks among the devices that pass.

    CARMA (arXiv 2508.19073) filters GPUs before it places: its released code skips those whose SM activity is 80 % or
    more, and those whose free memory is below the job's need.
    """

    max_utilisation: float = BUSIEST
    """Utilisation at which a device takes no other job"""
    slowdown: Slowdown = slowdown_by_utilisation
    """Believed cost of sharing"""

    def open_to(self, profile: JobProfile, states: Sequence[DeviceState]) -> list[int]:
        """Positions of the devices on which a job may start now."""
        largest_bytes = max(state.device.memory_bytes for state in states)
        return [n for n, state in enumerate(states) if self._admits(profile, state, largest_bytes)]

    def _admits(self, profile: JobProfile, state: DeviceState, largest_bytes: int) -> bool:
        need = profile.memory_estimate_bytes
        if state.closed:
            return False
        if need > state.free_bytes:
            # A job believed larger than every device gets one of the largest alone rather than nothing: published
            # estimators miss DLRM's memory by up to 76 times (CARMA), and a check before the start may refuse it.
            return not state.profiles and need > largest_bytes == state.device.memory_bytes
        if not state.profiles:
            return True
        busy = sum(each.utilisation for each in state.profiles)
        # progress of all jobs together, in seconds of a job alone per second
        both = state.profiles, (*state.profiles, profile)
        before, after = (sum(1 / slowdown for slowdown in self.slowdown(own)) for own in both)
        return busy < self.max_utilisation and after >= before * (1 + MIN_GAIN)


def cpu_admission(slowdown: Slowdown) -> Admission:
    """Conditions on CPU cores: the memory, and a gain.

    A limit on utilisation, CARMA's for GPUs, would keep every core to one job: threads that take turns look busy
    whether there is something to gain or not.
    """
    return Admission(math.inf, slowdown)


@dataclass(frozen=True)
class Policy:
    """A choice among devices; anything with its name and `choose` can stand in for it."""

    name: str
    choose: Callable[[JobProfile, Sequence[DeviceState], Admission], int | None]
    """From a job's profile and the states of all devices to the position of the device on which it starts now, or None:
    it waits"""


def _exclusive(profile: JobProfile, states: Sequence[DeviceState], admission: Admission) -> int | None:
    return next((n for n in admission.open_to(profile, states) if not states[n].profiles), None)


def _best_fit(profile: JobProfile, states: Sequence[DeviceState], admission: Admission) -> int | None:
    return min(admission.open_to(profile, states), key=lambda n: states[n].free_bytes, default=None)


POLICIES = {"exclusive": Policy("exclusive", _exclusive), "best-fit": Policy("best-fit", _best_fit)}
"""By name, `exclusive` first: the others are compared with it; best fit leaves the least free memory on its device"""


def get_policy(name: str) -> Policy:
    """A policy by its name; a UserError where there is none of that name."""
    if name not in POLICIES:
        raise UserError(f"policy {name!r} is unknown: choose one of {', '.join(POLICIES)}.")
    return POLICIES[name]


class Scheduler:
    """Places jobs on devices by a policy, for the simulator and for real processes alike; `jobs` is the queue's state.

    Jobs are looked at in the order in which they came. One that fits nowhere lets later ones pass, but only
    `MAX_OVERTAKEN` of them: then all wait until it has started, so that small jobs cannot starve a big one.

    A job that ran out of memory runs again, once, alone (CARMA's recovery). It comes before the queue: a device among
    the largest is closed to others at once, and is its own as soon as it is empty.
    """

    def __init__(
        self, jobs: Sequence[TrackedJob], devices: Sequence[PackingDevice], policy: Policy, admission: Admission
    ):
        self.jobs = {job.name: job for job in jobs}
        """By name, in the order of the queue"""
        self.monitored_free_bytes: dict[int, float] = {}
        """Free memory that a monitor read, by position of the device; its reader writes it here"""
        assert all(job.profile for job in jobs) and len(self.jobs) == len(jobs), "check the queue first"
        self._in_order = sorted(jobs, key=lambda job: job.queued.arrives_s)  # equal ones as in the file
        self._devices, self._policy, self._admission = tuple(devices), policy, admission
        self._reserved: dict[str, int] = {}
        """Device that a recovering job waits for or runs on alone, by the job's name"""

    @property
    def finished(self) -> bool:
        """Whether every job is done or failed."""
        return all(job.status in ("done", "failed") for job in self.jobs.values())

    def starts(self, at_s: float) -> list[TrackedJob]:
        """The jobs to start now, each with its new attempt. They are running from here on."""
        started = self._recover(at_s)
        waiting: list[TrackedJob] = []
        for job in self._that_are("queued"):
            if job.queued.arrives_s > at_s or any(earlier.overtaken >= MAX_OVERTAKEN for earlier in waiting):
                break
            device = self._policy.choose(job.profile, self._states(), self._admission)
            if device is None:
                waiting.append(job)
                continue
            for earlier in waiting:
                earlier.overtaken += 1
            started.append(self._start(job, device, at_s, alone=False))
        return started

    def ended(self, name: str, at_s: float, ending: str, reason: str = "") -> None:
        """A running job ended: done, out of memory, failed (which running again would not fix), or stopped."""
        job = self.jobs[name]
        attempt = job.attempts[-1]
        assert job.status == "running", f"{name} ends ({ending}), and is {job.status}"
        attempt.ends_s, attempt.ending, attempt.reason = at_s, ending, reason
        job.status, job.queued_s = ending, at_s
        if ending == "out of memory":
            job.status = "failed" if attempt.alone else "recovering"
        self._reserved.pop(name, None)
        # the last reading was made with this job on the device
        self.monitored_free_bytes.pop(attempt.device, None)

    def _that_are(self, status: str) -> list[TrackedJob]:
        return [job for job in self._in_order if job.status == status]

    def _on(self, device: int) -> list[TrackedJob]:
        return [job for job in self._that_are("running") if job.attempts[-1].device == device]

    def _states(self) -> list[DeviceState]:
        states = []
        for n, device in enumerate(self._devices):
            profiles, free_bytes = tuple(job.profile for job in self._on(n)), self.monitored_free_bytes.get(n, math.inf)
            states.append(DeviceState(device, profiles, n in self._reserved.values(), free_bytes))
        return states

    def _recover(self, at_s: float) -> list[TrackedJob]:
        """Give each recovering job a device of its own: reserved now, started on when empty."""
        most = max(device.memory_bytes for device in self._devices)
        # a smaller device would be a second attempt thrown away
        largest = [n for n, device in enumerate(self._devices) if device.memory_bytes == most]
        started = []
        for job in sorted(self._that_are("recovering"), key=lambda job: job.queued_s):
            free = [n for n in largest if n not in self._reserved.values()]
            if job.name not in self._reserved and free:
                self._reserved[job.name] = min(free, key=lambda n: len(self._on(n)))
            device = self._reserved.get(job.name)
            if device is not None and not self._on(device):
                started.append(self._start(job, device, at_s, alone=True))
        return started

    def _start(self, job: TrackedJob, device: int, at_s: float, *, alone: bool) -> TrackedJob:
        queued_s = max(job.queued_s, job.queued.arrives_s)
        job.attempts.append(Attempt(len(job.attempts) + 1, device, alone, queued_s, at_s))
        job.status = "running"
        return job


@dataclass(eq=False)
class _RunningJob:
    """A job in the simulated world, which knows the truth."""

    tracked: TrackedJob
    milestone_s: float
    """Work at which something happens to it next: it takes its memory, or it is done"""
    work_s: float = 0.0
    """Work done so far, in seconds of the job alone"""
    slowdown: float = 1.0
    taken_bytes: int = 0

    @property
    def device(self) -> int:
        return self.tracked.attempts[-1].device

    @property
    def ahead_s(self) -> float:
        """Time until its milestone."""
        return (self.milestone_s - self.work_s) * self.slowdown


def simulate(
    queue: Sequence[QueuedJob],
    devices: Sequence[PackingDevice],
    policy: Policy,
    *,
    slowdown: Slowdown = slowdown_by_utilisation,
    admission: Admission | None = None,
) -> Schedule:
    """Run a queue in simulated time; the same input gives the same schedule.

    A job next to others progresses at 1/slowdown of its rate alone. A job takes its true peak memory at once, at
    `ALLOCATES_AT` of its work. Where that does not fit next to what the others have taken, it runs out of memory and
    ends, and only it.

    The profiles of the jobs have a duration and a true memory. `slowdown` is the real cost of sharing in this simulated
    world. `admission` says who may join whom; by default the scheduler believes in `slowdown` itself.
    """
    _check_profiles(queue)
    jobs, now_s, running = [TrackedJob(each) for each in queue], 0.0, []
    scheduler = Scheduler(jobs, devices, policy, admission or Admission(slowdown=slowdown))

    def on(device: int) -> list[_RunningJob]:
        return [each for each in running if each.device == device]

    def free_bytes(device: int) -> int:
        return devices[device].memory_bytes - sum(each.taken_bytes for each in on(device))

    while not scheduler.finished:
        scheduler.monitored_free_bytes = {n: free_bytes(n) for n in range(len(devices))}
        for job in scheduler.starts(now_s):
            running.append(_RunningJob(job, ALLOCATES_AT * errors.certain(job.profile.duration_s)))
        for n in range(len(devices)):
            here = on(n)
            for each, times in zip(here, slowdown([each.tracked.profile for each in here]), strict=True):
                each.slowdown = times
        # time passes until something happens to a job, or a job comes
        arrives_s = min((each.arrives_s for each in queue if each.arrives_s > now_s), default=math.inf)
        job = min(running, key=lambda each: each.ahead_s, default=None)
        assert job is not None or arrives_s < math.inf, "a job was never started"
        # an end before an arrival of the same moment: what it frees is there for the newcomer
        if job is not None and now_s + job.ahead_s > arrives_s:
            job = None
        passed_s = arrives_s - now_s if job is None else job.ahead_s
        for each in running:
            # one that comes to its milestone does so exactly, whatever rounding says
            done_s = each.work_s + passed_s / each.slowdown
            each.work_s = each.milestone_s if each is job else min(each.milestone_s, done_s)
        now_s = arrives_s if job is None else now_s + passed_s
        if job is None:
            continue
        truth = job.tracked.profile
        if not job.taken_bytes and truth.memory_bytes <= free_bytes(job.device):
            job.taken_bytes, job.milestone_s = truth.memory_bytes, truth.duration_s
        else:
            running.remove(job)
            scheduler.ended(job.tracked.name, now_s, "done" if job.taken_bytes else "out of memory")
    return schedule_of(policy.name, "predicted", jobs, devices, "a simulation knows no power")


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


def pack_report(
    queue: Sequence[QueuedJob], devices: Sequence[PackingDevice], policies: Iterable[str] = tuple(POLICIES), **settings
) -> pd.DataFrame:
    """Simulate a queue under several policies, `exclusive` first, named or not, and compare them by `side_by_side`.

    `settings` are those of `simulate`.
    """
    names = dict.fromkeys(["exclusive", *policies])
    return side_by_side([simulate(queue, devices, get_policy(name), **settings) for name in names])

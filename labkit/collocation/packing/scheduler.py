"""The scheduler: told what happened and when, it says what to start where. It has no clock and starts nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from labkit.collocation.packing.policy import Admission, DeviceState, PackingDevice, Policy
from labkit.collocation.packing.queued_job import Attempt, QueuedJob, TrackedJob
from labkit.errors import UserError

MAX_OVERTAKEN = 4
"""Our choice between a device left idle (0: first come, first served, as in CARMA) and a big job left waiting."""


class Scheduler:
    """Places jobs on devices by a policy, for the simulator and for real processes alike; `jobs` is the queue's state.

    Tell it events with `arrived`, `ended` and `observed`, then ask for `starts`; each job that it names counts as
    running from then on. Times are seconds on any one clock that does not run backwards.

    Jobs are looked at in the order in which they came. One that fits nowhere lets later ones pass, but only
    `MAX_OVERTAKEN` of them: then all wait until it has started, so that small jobs cannot starve a big one.

    A job that ran out of memory runs again, once, alone (CARMA's recovery). It comes before the queue: a device among
    the largest is closed to others at once, and is its own as soon as it is empty.
    """

    def __init__(
        self,
        queue: Sequence[QueuedJob],
        devices: Sequence[PackingDevice],
        policy: Policy,
        admission: Admission | None = None,
    ):
        """Nothing has arrived yet.

        Raises:
            UserError: no device, two of one name, two jobs of one name, or a job without a profile.
        """
        _check(queue, devices)
        self.jobs = {job.name: TrackedJob(job) for job in queue}
        """By name, in the order of the queue"""
        self._coming = sorted(self.jobs.values(), key=lambda job: job.queued.arrives_s)  # equal ones as in the file
        self._devices, self._policy, self._admission = tuple(devices), policy, admission or Admission()
        self._on: list[list[TrackedJob]] = [[] for _ in devices]
        """What runs on each device"""
        self._line: list[TrackedJob] = []
        self._recovering: list[TrackedJob] = []
        self._reserved: dict[int, TrackedJob] = {}
        """Devices that a recovering job waits for or runs on alone"""
        self._last = -1
        self._observed: dict[int, dict[str, float]] = {}

    @property
    def next_arrival_s(self) -> float | None:
        """When the next job comes; None where all have."""
        return self._coming[0].queued.arrives_s if self._coming else None

    @property
    def finished(self) -> bool:
        """Whether every job is done or failed."""
        return all(job.status in ("done", "failed") for job in self.jobs.values())

    def let_arrive(self, until_s: float) -> None:
        """The jobs that have come by then get in line."""
        while self._coming and self._coming[0].queued.arrives_s <= until_s:
            job = self._coming.pop(0)
            job.status, job.queued_s = "queued", until_s
            self._line.append(job)

    def ended(self, name: str, at_s: float, ending: str, reason: str = "") -> None:
        """A running job ended.

        Args:
            name: of the job.
            at_s: when.
            ending: "done", "out of memory", "failed" (anything else, which running again would not mend), or "stopped".
            reason: in words.
        """
        job = self.jobs[name]
        attempt = job.attempts[-1]
        assert job.status == "running", f"{name} ends ({ending}), and is {job.status}"
        attempt.ends_s, attempt.ending, attempt.reason = at_s, ending, reason
        job.status, job.queued_s = ending, at_s
        self._on[attempt.device].remove(job)
        if self._reserved.get(attempt.device) is job:
            del self._reserved[attempt.device]
        # what was seen of the device was seen with this job on it
        self._observed.pop(attempt.device, None)
        if ending == "out of memory":
            job.status = "failed" if attempt.alone else "recovering"
            self._recovering += [] if attempt.alone else [job]

    def observed(self, device: int, **seen: float) -> None:
        """What a monitor read of a device, as `DeviceState` names it; the last reading counts."""
        self._observed[device] = seen

    def starts(self, at_s: float) -> list[TrackedJob]:
        """The jobs to start now, each with its new attempt. They are running from here on."""
        started = self._recover(at_s)
        waiting: list[TrackedJob] = []
        for job in list(self._line):
            if any(earlier.overtaken >= MAX_OVERTAKEN for earlier in waiting):
                break
            device = self._policy.choose(job.profile, self.states(), self._admission, self._last)
            if device is None:
                waiting.append(job)
                continue
            for earlier in waiting:
                earlier.overtaken += 1
            self._line.remove(job)
            self._last = device
            started.append(self._start(job, device, at_s, alone=False))
        return started

    def states(self) -> list[DeviceState]:
        """All devices as a policy sees them."""
        return [
            DeviceState(
                device,
                tuple(job.profile for job in self._on[position]),
                position in self._reserved,
                **self._observed.get(position, {}),
            )
            for position, device in enumerate(self._devices)
        ]

    def _recover(self, at_s: float) -> list[TrackedJob]:
        """Give each recovering job a device of its own: reserved now, started on when empty."""
        started = []
        for job in list(self._recovering):
            device = next((position for position, owner in self._reserved.items() if owner is job), None)
            if device is None:
                device = self._reserve(job)
            if device is not None and not self._on[device]:
                self._recovering.remove(job)
                started.append(self._start(job, device, at_s, alone=True))
        return started

    def _reserve(self, job: TrackedJob) -> int | None:
        """Close the largest device, the one with the fewest jobs among equals; None where all of them are closed."""
        largest_bytes = max(device.memory_bytes for device in self._devices)
        # a smaller device would be a second attempt thrown away
        free = [
            position
            for position, device in enumerate(self._devices)
            if position not in self._reserved and device.memory_bytes == largest_bytes
        ]
        device = min(free, key=lambda position: len(self._on[position]), default=None)
        if device is not None:
            self._reserved[device] = job
        return device

    def _start(self, job: TrackedJob, device: int, at_s: float, *, alone: bool) -> TrackedJob:
        job.attempts.append(Attempt(len(job.attempts) + 1, device, alone, job.queued_s, at_s))
        job.status = "running"
        self._on[device].append(job)
        return job


def _check(queue: Sequence[QueuedJob], devices: Sequence[PackingDevice]) -> None:
    """Refuse what no scheduler can place, all of it."""
    faults = [] if devices else ["there is no device to run jobs on: name at least one."]
    faults += [f"two devices are named {name}: name each once." for name in _twice(device.name for device in devices)]
    faults += [] if queue else ["there is no job in the queue: write at least one under `jobs:`."]
    faults += [f"two jobs are named {name}: give each its own name." for name in _twice(job.name for job in queue)]
    faults += [
        f"{job.place}: nobody knows what job {job.name} asks for: give it memory and utilisation."
        for job in queue
        if job.profile is None
    ]
    if faults:
        raise UserError("\n".join(faults))


def _twice(names: Iterable[str]) -> list[str]:
    return [name for name, times in Counter(names).items() if times > 1]

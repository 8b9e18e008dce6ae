"""The scheduler: told what happened and when, it says what to start where. It has no clock and starts nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from labkit.collocation.packing.admission import Admission
from labkit.collocation.packing.device_state import DeviceState, PackingDevice
from labkit.collocation.packing.policy import Policy
from labkit.collocation.packing.queued_job import ENDINGS, Attempt, QueuedJob, TrackedJob
from labkit.errors import UserError

MAX_OVERTAKEN = 4
"""Our choice between a device left idle (0: first come, first served, as in CARMA) and a big job left waiting."""


@dataclass(frozen=True)
class Start:
    """An answer of the scheduler: start this job there, now."""

    name: str
    """Of the job"""
    device: int
    """Position among the devices"""
    attempt: int
    """1, or 2 after it ran out of memory"""
    alone: bool
    """Whether the device is kept for it"""


class Scheduler:
    """Places jobs on devices by a policy, for the simulator and for real processes alike.

    Tell it events with `arrived`, `ended` and `observed`, then ask for `starts`; each job that it names counts as
    running from then on. Times are seconds on any one clock that does not run backwards.

    Jobs are looked at in the order in which they came. One that fits nowhere lets later ones pass, but only
    `max_overtaken` of them: then all wait until it has started, so that small jobs cannot starve a big one.

    A job that ran out of memory runs again, once, alone (CARMA's recovery). It comes before the queue: a device among
    the largest is closed to others at once, and is its own as soon as it is empty.
    """

    def __init__(
        self,
        queue: Sequence[QueuedJob],
        devices: Sequence[PackingDevice],
        policy: Policy,
        *,
        admission: Admission | None = None,
        max_overtaken: int = MAX_OVERTAKEN,
    ):
        """Nothing has arrived yet.

        Raises:
            UserError: no device, two of one name, two jobs of one name, or a job without a profile.
        """
        check_queue(queue, devices)
        self.jobs = {job.name: TrackedJob(job) for job in queue}
        """By name, in the order of the queue"""
        self.devices = tuple(devices)
        self.policy = policy
        self._admission = admission or Admission()
        self._max_overtaken = max_overtaken
        self._on: list[list[TrackedJob]] = [[] for _ in self.devices]
        """What runs on each device"""
        self._line: list[TrackedJob] = []
        self._recovering: list[TrackedJob] = []
        self._reserved: dict[int, TrackedJob] = {}
        """Devices that a recovering job waits for or runs on alone"""
        self._last = -1
        self._observed: dict[int, tuple[int | None, float | None]] = {}

    def arrived(self, name: str, at_s: float) -> None:
        """A job got in line."""
        job = self.jobs[name]
        assert job.status == "expected", f"{name} arrives, and is {job.status}"
        job.status, job.queued_s = "queued", at_s
        self._line.append(job)

    def ended(self, name: str, at_s: float, ending: str, *, work_s: float | None = None) -> None:
        """A running job ended.

        Args:
            name: of the job.
            at_s: when.
            ending: "done", "out of memory" or "failed" (anything else, which running again would not mend).
            work_s: seconds of the job alone that it got done, where known.
        """
        job = self.jobs[name]
        assert job.status == "running" and ending in ENDINGS, f"{name} ends ({ending}), and is {job.status}"
        attempt = job.attempts[-1]
        attempt.ends_s, attempt.ending, attempt.work_s = at_s, ending, work_s
        self._on[attempt.device].remove(job)
        if self._reserved.get(attempt.device) is job:
            del self._reserved[attempt.device]
        # what was seen of the device was seen with this job on it
        self._observed.pop(attempt.device, None)
        if ending == "out of memory" and attempt.number == 1:
            job.status, job.queued_s = "recovering", at_s
            self._recovering.append(job)
        else:
            job.status = "done" if ending == "done" else "failed"

    def observed(self, device: int, *, free_bytes: int | None = None, utilisation: float | None = None) -> None:
        """A monitor read a device: its free memory, its utilisation (0 to 1), or both. The last reading counts."""
        self._observed[device] = (free_bytes, utilisation)

    def starts(self, at_s: float) -> list[Start]:
        """The jobs to start now. They are running from here on."""
        started = self._recover(at_s)
        waiting: list[TrackedJob] = []
        states = self.states()
        for job in list(self._line):
            if any(earlier.overtaken >= self._max_overtaken for earlier in waiting):
                break
            device = self.policy.choose(job.queued.profile, states, last=self._last, admission=self._admission)
            if device is None:
                waiting.append(job)
                continue
            for earlier in waiting:
                earlier.overtaken += 1
            self._line.remove(job)
            self._last = device
            started.append(self._start(job, device, at_s, alone=False))
            states = self.states()
        return started

    def states(self) -> list[DeviceState]:
        """All devices as a policy sees them."""
        return [
            DeviceState(
                device,
                tuple(job.queued.profile for job in self._on[position]),
                position in self._reserved,
                *self._observed.get(position, (None, None)),
            )
            for position, device in enumerate(self.devices)
        ]

    @property
    def finished(self) -> bool:
        """Whether every job is done or failed."""
        return all(job.status in ("done", "failed") for job in self.jobs.values())

    def _recover(self, at_s: float) -> list[Start]:
        """Give each recovering job a device of its own: reserved now, started on when empty."""
        started = []
        for job in list(self._recovering):
            device = next((position for position, owner in self._reserved.items() if owner is job), None)
            if device is None:
                device = self._reserve(job)
            if device is None or self._on[device]:
                continue
            self._recovering.remove(job)
            started.append(self._start(job, device, at_s, alone=True))
        return started

    def _reserve(self, job: TrackedJob) -> int | None:
        """Close the largest device, the one with the fewest jobs among equals; None where all of them are closed."""
        states = self.states()
        largest_bytes = max(device.memory_bytes for device in self.devices)
        # a smaller device would be a second attempt thrown away
        free = [p for p, state in enumerate(states) if not state.closed and state.device.memory_bytes == largest_bytes]
        device = min(free, key=lambda position: (len(states[position].profiles), position), default=None)
        if device is not None:
            self._reserved[device] = job
        return device

    def _start(self, job: TrackedJob, device: int, at_s: float, *, alone: bool) -> Start:
        number = len(job.attempts) + 1
        job.attempts.append(Attempt(number, device, alone, job.queued_s, at_s))
        job.status = "running"
        self._on[device].append(job)
        return Start(job.name, device, number, alone)


def check_queue(queue: Sequence[QueuedJob], devices: Sequence[PackingDevice]) -> None:
    """Refuse what no scheduler can place.

    Raises:
        UserError: one line a fault, all of them.
    """
    faults = [] if devices else ["there is no device to run jobs on: name at least one."]
    faults += [f"two devices are named {name}: name each once." for name in _twice(device.name for device in devices)]
    faults += [] if queue else ["there is no job in the queue: write at least one under `jobs:`."]
    faults += [f"two jobs are named {name}: give each its own name." for name in _twice(job.name for job in queue)]
    faults += [
        f"{job.job.where or job.name}: nobody knows what job {job.name} asks for: give it a profile, or memory and "
        "utilisation."
        for job in queue
        if job.profile is None
    ]
    if faults:
        raise UserError("\n".join(faults))


def _twice(names: Iterable[str]) -> list[str]:
    return [name for name, times in Counter(names).items() if times > 1]

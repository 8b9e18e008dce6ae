"""What has become of a job so far: its status, and each time it was started."""

from __future__ import annotations

from dataclasses import dataclass, field

from labkit.collocation.packing.queued_job import QueuedJob

ENDINGS = ("done", "out of memory", "failed")


@dataclass
class Attempt:
    """One start of a job."""

    number: int
    """From 1"""
    device: int
    """Position among the devices"""
    alone: bool
    """Whether the device is kept for it"""
    queued_s: float
    """When it got in line for this attempt"""
    starts_s: float
    ends_s: float | None = None
    """None while it runs"""
    ending: str | None = None
    """One of ENDINGS; None while it runs"""
    work_s: float | None = None
    """Seconds of the job alone that it got done, where known"""


@dataclass
class TrackedJob:
    """A queued job and its history."""

    queued: QueuedJob
    status: str = "expected"
    """expected (it has not arrived), queued, running, recovering (it ran out of memory, and waits for a device alone),
    done, failed, or stopped"""
    queued_s: float | None = None
    """When it last got in line"""
    overtaken: int = 0
    """How many jobs that came later were started before it"""
    attempts: list[Attempt] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The job's own."""
        return self.queued.name

    @property
    def ran_out_of_memory(self) -> bool:
        """Whether an attempt did."""
        return any(attempt.ending == "out of memory" for attempt in self.attempts)

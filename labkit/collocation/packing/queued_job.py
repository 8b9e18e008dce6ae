"""One job of a queue: what is trained, when it came, what it asks for, and what has become of it so far."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from labkit.collocation.packing.job_profile import JobProfile
from labkit.collocation.plan.planned_job import PlannedJob
from labkit.errors import UserError

ENDINGS = ("done", "out of memory", "failed")


@dataclass(frozen=True)
class QueuedJob:
    """A planned job in line."""

    job: PlannedJob
    arrives_s: float = 0.0
    """After the queue opens"""
    profile: JobProfile | None = None
    """None until somebody measured or estimated it; it is placed only with one"""

    def __post_init__(self):
        if not 0 <= self.arrives_s < math.inf:
            raise UserError(
                f"{self.job.where + ': ' if self.job.where else ''}arrives is {self.arrives_s:g}: give seconds from 0, "
                "counted from the opening of the queue."
            )

    @property
    def name(self) -> str:
        """The job's own."""
        return self.job.name


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
    """One of ENDINGS, or stopped, by the user or by the packer's own end; None while it runs"""
    work_s: float | None = None
    """Seconds of the job alone that it got done, where known"""
    run: str | None = None
    """Its run folder's name, in the queue's folder, where it really ran"""
    reason: str = ""
    """Of its end, in words, where it really ran"""


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

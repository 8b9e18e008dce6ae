"""One job of a queue: what it asks for, when it came, and what has become of it so far."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from labkit.collocation.plan.planned_job import PlannedJob
from labkit.errors import UserError
from labkit.runs.record import KINDS


@dataclass(frozen=True)
class JobProfile:
    """What a job asks of a device alone. The scheduler decides on the estimate; the simulator also knows the truth."""

    memory_estimate_bytes: int
    """Peak memory as believed before the job runs; a policy sees this one only"""
    utilisation: float
    """Share of the device that it keeps busy, above 0 and up to 1: SM activity on a GPU, share of the cores on a CPU"""
    duration_s: float | None = None
    """Wall time; None where it never ran"""
    memory_bytes: int | None = None
    """Peak memory in truth; None where it never ran"""
    provenance: str = "predicted"
    """measured, recorded, emulated or predicted"""
    like: str | None = None
    """Name of the recorded job whose pairs are its own"""

    def __post_init__(self):
        if not 0 < self.utilisation <= 1:
            raise UserError(f"utilisation is {self.utilisation:g}: give a share of the device above 0 and up to 1.")
        if self.duration_s is not None and not 0 < self.duration_s < math.inf:
            raise UserError(f"duration is {self.duration_s:g}: give a number of seconds above zero.")
        for name in ("memory_bytes", "memory_estimate_bytes"):
            if getattr(self, name) is not None and getattr(self, name) <= 0:
                raise UserError(f"{name} is {getattr(self, name)}: give a size above zero, such as 2GiB.")
        if self.provenance not in KINDS:
            raise UserError(f"provenance {self.provenance!r} is unknown: choose one of {', '.join(KINDS)}.")


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
                f"arrives is {self.arrives_s:g}: give seconds from 0, counted from the opening of the queue."
            )

    @property
    def name(self) -> str:
        return self.job.name

    @property
    def place(self) -> str:
        """Where it was asked for, for messages."""
        return self.job.where or self.name


@dataclass
class Attempt:
    """One start of a job. Seconds count from the opening of the queue."""

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
    """done, out of memory, failed, or stopped; None while it runs"""
    run: str | None = None
    """Its run folder's name, in the queue's folder, where it really ran"""
    reason: str = ""
    """Of its end, where it really ran"""


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
        return self.queued.name

    @property
    def profile(self) -> JobProfile:
        return self.queued.profile

    @property
    def ran_out_of_memory(self) -> bool:
        return any(attempt.ending == "out of memory" for attempt in self.attempts)

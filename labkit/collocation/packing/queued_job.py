"""One job of a queue: what is trained, when it came, what it asks for."""

from __future__ import annotations

import math
from dataclasses import dataclass

from labkit.collocation.packing.job_profile import JobProfile
from labkit.collocation.plan.planned_job import PlannedJob
from labkit.errors import UserError


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

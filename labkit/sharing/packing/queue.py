"""The jobs of a queue: what each asks for, when it comes, what became of it so far; and QUEUE.yaml."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from labkit.errors import UserError
from labkit.launch.rows import Mistakes, Row, read_settings, read_yaml
from labkit.sharing.plan.job_rows import read_jobs
from labkit.sharing.plan.planned_job import PlannedJob

QUEUE_EXAMPLE = """\
jobs:
  - job: dlrm:tour
    copies: 3
  - script: train.py
    arrives: 30
    memory: 2GiB
    utilisation: 0.5
    duration: 60"""
NUMBERS = {"arrives": "time", "duration": "duration", "utilisation": "share"}
"""Of a row, beside the fields of a job in a plan; `memory` is both the job's and its profile's"""


@dataclass(frozen=True)
class JobProfile:
    """What a job asks of a device alone. The scheduler decides on the estimate; the simulator also knows the truth."""

    memory_estimate_bytes: int
    """Peak memory as believed before the job runs"""
    utilisation: float
    """Share of the device that it keeps busy, above 0 and up to 1: SM activity on a GPU, share of the cores on a CPU"""
    duration_s: float | None = None
    """Wall time; None where it never ran"""
    memory_bytes: int | None = None
    """Peak memory in truth; None where it never ran"""
    like: str | None = None
    """Name of the recorded job whose pairs are its own"""


@dataclass(frozen=True)
class QueuedJob:
    """A planned job in line."""

    job: PlannedJob
    arrives_s: float = 0.0
    """After the queue opens"""
    profile: JobProfile | None = None
    """None until somebody measured or estimated it; it is placed only with one"""

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
    ending: str | None = None
    """done, out of memory, failed, or stopped; None while it runs"""
    run: str | None = None
    """Its run folder's name, in the queue's folder, where it really ran"""
    reason: str = ""


@dataclass
class TrackedJob:
    """A queued job and its history."""

    queued: QueuedJob
    status: str = "expected"
    """expected (it has not arrived), queued, running, recovering (it ran out of memory, and waits for a device alone),
    done, failed, or stopped"""
    queued_s: float = 0.0
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


def read_queue(path: Path) -> list[QueuedJob]:
    """Read a queue file, its jobs in order; a UserError has every mistake of every row.

    `jobs` is a list as in a plan. Beside a job's own fields a row may have `arrives` (seconds, 0 by default) and what
    is known of the job alone: `memory`, `utilisation` (0 to 1), `duration` (seconds).
    `memory` alone is a cap, as in a plan, and is believed to be what the job needs. Relative paths are looked for in
    the file's folder. A job of which nothing is known has no profile.
    """
    top, mistakes = read_yaml(path, QUEUE_EXAMPLE), Mistakes(str(path))
    asked = read_settings(top, {"jobs": Row}, mistakes)
    if "jobs" not in top:
        mistakes.add(top.place, "there is no job in it: list some under jobs.")
    queue = []
    for job, known in read_jobs(asked.get("jobs", ()), (path.parent,), mistakes, others=NUMBERS):
        with mistakes.noting(Row((), job.where)):
            queue.append(_queued(job, **known))
    mistakes.raise_if_any()
    return queue


def _queued(
    job: PlannedJob, arrives: float = 0.0, utilisation: float | None = None, duration: float | None = None
) -> QueuedJob:
    if utilisation is None and duration is None:
        return QueuedJob(job, arrives)
    needed = (("memory", job.memory_bytes), ("utilisation", utilisation))
    if missing := [name for name, value in needed if value is None]:
        raise UserError(f"there is no {' and no '.join(missing)} of the job alone: write it, or leave the rest out.")
    return QueuedJob(job, arrives, JobProfile(job.memory_bytes, utilisation, duration, job.memory_bytes))

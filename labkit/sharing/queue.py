"""The jobs of a queue: their profiles, arrivals and histories; queue files; recorded profiles that ship."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean

from labkit import errors, json_data, launch, project, runs

QUEUE_EXAMPLE = """\
jobs:
  - job: dlrm:tour
    copies: 3
  - script: train.py
    arrives: 30
    memory: 2GiB
    utilisation: 0.5
    duration: 60"""
PROFILES_FILE = "job_profiles.json"
NUMBERS = {"arrives": "time", "duration": "duration", "utilisation": "share"}
"""Fields of a row in addition to those of a job in a mix; `memory` is both the job's and its profile's"""


@dataclass(frozen=True)
class PackingDevice:
    """A device as far as packing needs to know it."""

    name: str
    """Unique among the devices of a queue"""
    memory_bytes: int


@dataclass(frozen=True)
class JobProfile:
    """Needs of a job alone on a device. The scheduler decides on the estimate; the simulator also knows the truth."""

    memory_estimate_bytes: int
    """Peak memory as believed before the job runs"""
    utilisation: float
    """Busy share of the device, above 0 and up to 1: SM activity on a GPU, share of the cores on a CPU"""
    duration_s: float | None = None
    """Wall time; None where it never ran"""
    memory_bytes: int | None = None
    """True peak memory; None where it never ran"""
    like: str | None = None
    """Name of the recorded job whose pairs are its own"""


Slowdown = Callable[[Sequence[JobProfile]], list[float]]
"""From the profiles of the jobs on one device to how many times longer each takes than alone, in the same order."""


def slowdown_by_utilisation(profiles: Sequence[JobProfile]) -> list[float]:
    """How much longer each job takes next to the others, from utilisations alone: max(1, their sum) for all of them.

    The simplest model that conserves work. It knows no caches, no bandwidth and no launch gaps, so it is the most that
    sharing can give.

    >>> light, heavy = JobProfile(2**30, 0.3), JobProfile(2**30, 0.9)
    >>> slowdown_by_utilisation([light, light]), slowdown_by_utilisation([light, heavy])
    ([1.0, 1.0], [1.2, 1.2])
    """
    demand = max(1.0, sum(profile.utilisation for profile in profiles))
    return [demand] * len(profiles)


@dataclass(frozen=True)
class QueuedJob:
    """A planned job in line."""

    job: "launch.PlannedJob"
    arrives_s: float = 0.0
    """Seconds after the queue opens"""
    profile: JobProfile | None = None
    """None until it was measured or estimated; a job without one is not placed"""

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
    status: str = "queued"
    """queued, running, recovering (it ran out of memory, and waits for a device alone), done, failed, or stopped"""
    queued_s: float = 0.0
    """When it last got in line again; before its first start, when it arrives counts"""
    overtaken: int = 0
    """Number of jobs that came later and were started before it"""
    attempts: list[Attempt] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.queued.name

    @property
    def profile(self) -> JobProfile:
        return errors.certain(self.queued.profile)


def read_queue(path: Path) -> list[QueuedJob]:
    """Read a queue file, its jobs in order; a UserError lists every error of every row.

    `jobs` is a list as in a mix. In addition to a job's own fields a row may have `arrives` (seconds, 0 by default) and
    what is known of the job alone: `memory`, `utilisation` (0 to 1), `duration` (seconds). `memory` alone is a cap, as
    in a mix, and is believed to be what the job needs. Relative paths are looked for in the file's folder. A job of
    which nothing is known has no profile.
    """
    top, mistakes = launch.read_yaml(path, QUEUE_EXAMPLE), launch.Mistakes(str(path))
    asked = launch.read_settings(top, {"jobs": launch.Row}, mistakes)
    if "jobs" not in top:
        mistakes.add(top.place, "there is no job in it: list some under jobs.")
    queue = []
    for job, known in launch.read_jobs(asked.get("jobs", ()), (path.parent,), mistakes, others=NUMBERS):
        profile, utilisation, duration_s = None, known.get("utilisation"), known.get("duration")
        if utilisation is not None or duration_s is not None:
            needed = {"memory": job.memory_bytes, "utilisation": utilisation}
            if missing := " and no ".join(name for name, value in needed.items() if value is None):
                mistakes.add(job.where, f"there is no {missing} of the job alone: write it, or omit the rest.")
            elif job.memory_bytes is not None and utilisation is not None:
                profile = JobProfile(job.memory_bytes, utilisation, duration_s, job.memory_bytes)
        queue.append(QueuedJob(job, known.get("arrives", 0.0), profile))
    mistakes.raise_if_any()
    return queue


@dataclass(frozen=True)
class RecordedJob:
    """A job that was measured alone."""

    job: "launch.PlannedJob"
    weight: str
    """light, medium or heavy: its share of the queue of 60"""
    profile: JobProfile
    """Its duration is that of its whole process, from its start to its end"""


@dataclass(frozen=True)
class RecordedPair:
    """Two jobs that were measured together, on shared cores."""

    jobs: tuple[str, str]
    slowdowns: tuple[float, float]
    """Time of each over that alone on the same cores"""


@dataclass(frozen=True)
class RecordedProfiles:
    """Jobs of one machine."""

    device: str
    cores: int
    memory_bytes: int
    """Of the machine"""
    provenance: "runs.Provenance"
    jobs: tuple[RecordedJob, ...]
    pairs: tuple[RecordedPair, ...]

    def of(self, job: "launch.PlannedJob") -> JobProfile | None:
        """The profile of a job that differs in name, seed and place at most; None where it was never measured."""
        return next((each.profile for each in self.jobs if each.job.job == job.job), None)

    def fill(self, queue: Sequence[QueuedJob]) -> list[QueuedJob]:
        """The queue with what is recorded of its jobs, where a row does not say it itself."""
        filled = []
        for queued in queue:
            profile = recorded = self.of(queued.job)
            if queued.profile is not None:
                profile = replace(queued.profile, like=recorded and recorded.like)
            elif recorded is not None and queued.job.memory_bytes:
                profile = replace(recorded, memory_estimate_bytes=queued.job.memory_bytes)
            filled.append(replace(queued, profile=profile))
        return filled


def read_recorded(path: Path | None = None) -> RecordedProfiles:
    """Read recorded jobs and pairs; None takes the file that ships with labkit."""
    path = path or project.shipped_datasets() / "recorded" / PROFILES_FILE
    fix = "Restore it, or run python datasets/recorded/make_job_profiles.py."
    return json_data.build(json_data.read_json(path, RecordedProfiles, fix=fix), RecordedProfiles)


def shared_slowdown(recorded: RecordedProfiles) -> Slowdown:
    """How jobs that share cores slow each other down, by the best of what is known of them.

    Two jobs that were measured together do so as they did then. More of them do no more work together than they
    do in pairs: each of n takes n/2 times as long as, on average, next to one of the others. (Of the six mixes of four
    jobs in datasets/recorded/collocation_grid.json, that misses none by more than 12 %.) Where a pair was never
    measured, by their utilisations (`slowdown_by_utilisation`).
    """
    known = {pair.jobs: pair.slowdowns[0] for pair in recorded.pairs}
    known |= {pair.jobs[::-1]: pair.slowdowns[1] for pair in recorded.pairs}

    def slowdown(profiles: Sequence[JobProfile]) -> list[float]:
        found = [
            [known.get((one.like, other.like), math.nan) for place, other in enumerate(profiles) if place != own]
            for own, one in enumerate(profiles)
        ]
        if any(math.isnan(each) for pairs in found for each in pairs):
            return slowdown_by_utilisation(profiles)
        return [len(profiles) / 2 * fmean(pairs) if pairs else 1.0 for pairs in found]

    return slowdown

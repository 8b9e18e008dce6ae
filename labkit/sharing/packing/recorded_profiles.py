"""Jobs of labkit's that were measured on one machine, alone and in pairs, and ship with it to replay queues from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from labkit.json_data import build, read_json
from labkit.project import shipped_datasets
from labkit.runs import Provenance
from labkit.sharing.packing.policy import Slowdown, slowdown_by_utilisation
from labkit.sharing.packing.queue import JobProfile, QueuedJob
from labkit.sharing.plan.planned_job import PlannedJob

PROFILES_FILE = "job_profiles.json"


@dataclass(frozen=True)
class RecordedJob:
    """A job that was measured alone."""

    job: PlannedJob
    weight: str
    """light, medium or heavy: how often the queue of 60 draws it"""
    profile: JobProfile
    """Its duration is that of its whole process, from its start to its end"""


@dataclass(frozen=True)
class RecordedPair:
    """Two jobs that were measured beside each other, on shared cores."""

    jobs: tuple[str, str]
    slowdowns: tuple[float, float]
    """Of each, its time over that alone on the same cores"""


@dataclass(frozen=True)
class RecordedProfiles:
    """Jobs of one machine."""

    device: str
    cores: int
    memory_bytes: int
    """Of the machine"""
    provenance: Provenance
    jobs: tuple[RecordedJob, ...]
    pairs: tuple[RecordedPair, ...]

    def of(self, job: PlannedJob) -> JobProfile | None:
        """The profile of a job that differs in name, seed and place at most; None where it was never measured."""
        return next((each.profile for each in self.jobs if each.job.job_key == job.job_key), None)

    def fill(self, queue: Sequence[QueuedJob]) -> list[QueuedJob]:
        """The queue with what is recorded of its jobs, where a row does not say it itself."""

        def profile(queued: QueuedJob) -> JobProfile | None:
            own, recorded = queued.profile, self.of(queued.job)
            if recorded is None or own is not None:
                return own and replace(own, like=recorded and recorded.like)
            return replace(recorded, memory_estimate_bytes=queued.job.memory_bytes or recorded.memory_estimate_bytes)

        return [replace(queued, profile=profile(queued)) for queued in queue]


def read_recorded(path: Path | None = None) -> RecordedProfiles:
    """Read recorded jobs and pairs; None takes the file that ships with labkit."""
    path = path or shipped_datasets() / "recorded" / PROFILES_FILE
    content = read_json(path, RecordedProfiles, fix="Restore it, or python datasets/recorded/make_job_profiles.py.")
    return build(content, RecordedProfiles)


def shared_slowdown(recorded: RecordedProfiles) -> Slowdown:
    """How jobs that share cores slow each other down, by the best of what is known of them.

    Of two jobs that were measured beside each other, as they did then. More of them do no more work together than they
    do in pairs: each of n takes n/2 times as long as, on average, beside one of the others. (Of the six mixes of four
    jobs in datasets/recorded/collocation_grid.json, that misses none by more than 12 %.) Where a pair was never
    measured, by their utilisations (`slowdown_by_utilisation`).
    """
    known = {pair.jobs: pair.slowdowns[0] for pair in recorded.pairs}
    known |= {pair.jobs[::-1]: pair.slowdowns[1] for pair in recorded.pairs}

    def slowdown(profiles: Sequence[JobProfile]) -> list[float]:
        beside = [
            [known.get((one.like, other.like)) for place, other in enumerate(profiles) if place != own]
            for own, one in enumerate(profiles)
        ]
        if any(None in pairs for pairs in beside):
            return slowdown_by_utilisation(profiles)
        return [len(profiles) / 2 * fmean(pairs) if pairs else 1.0 for pairs in beside]

    return slowdown

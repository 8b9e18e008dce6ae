"""Profiles of labkit's jobs that were measured on one machine and ship with labkit, to replay queues from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from labkit.collocation.interference.machine import Machine
from labkit.collocation.interference.prediction import predict_slowdowns
from labkit.collocation.interference.solo_profile import SoloProfile
from labkit.collocation.packing.admission import Admission, Slowdown
from labkit.collocation.packing.job_profile import JobProfile, slowdown_by_utilisation
from labkit.collocation.packing.queued_job import QueuedJob
from labkit.collocation.plan.planned_job import PlannedJob
from labkit.data.store import shipped_datasets
from labkit.errors import UserError
from labkit.runs import Provenance
from labkit.runs.atomic import replace_text

FORMAT = 1
PROFILES_FILE = "job_profiles.json"


@dataclass(frozen=True)
class RecordedJob:
    """A job that was profiled alone."""

    job: PlannedJob
    weight: str
    """light, medium or heavy, as `generate_queue` draws them"""
    profile: JobProfile
    """Its duration is that of its whole process, from its start to its end"""


@dataclass(frozen=True)
class RecordedProfiles:
    """Jobs of one machine."""

    machine: Machine
    memory_bytes: int
    """Of the machine"""
    provenance: Provenance
    jobs: tuple[RecordedJob, ...]

    def of(self, job: PlannedJob) -> JobProfile | None:
        """The profile of a job that differs in name, seed and place at most; None where it was never profiled."""
        return next((each.profile for each in self.jobs if each.job.likeness == job.likeness), None)

    def fill(self, queue: Sequence[QueuedJob]) -> list[QueuedJob]:
        """The queue with what is recorded of its jobs, where a row does not say it itself."""
        found = []
        for queued in queue:
            own, recorded = queued.profile, self.of(queued.job)
            if recorded is not None and own is None:
                estimate_bytes = queued.job.memory_bytes or recorded.memory_estimate_bytes
                own = replace(recorded, memory_estimate_bytes=estimate_bytes)
            elif recorded is not None:
                own = replace(own, solo=own.solo or recorded.solo)
            found.append(replace(queued, profile=own))
        return found

    def kinds(self) -> dict[str, list[QueuedJob]]:
        """By weight, what `generate_queue` draws from."""
        found: dict[str, list[QueuedJob]] = {}
        for each in self.jobs:
            found.setdefault(each.weight, []).append(QueuedJob(each.job, 0.0, each.profile))
        return found

    def save(self, path: Path) -> None:
        """Write them as JSON."""
        replace_text(path, json.dumps({"format": FORMAT} | asdict(self), indent=1) + "\n")


def read_recorded(path: Path | None = None) -> RecordedProfiles:
    """Read what `save` wrote.

    Args:
        path: of the file; None takes the one that ships with labkit.

    Raises:
        UserError: there is none, or it is damaged.
    """
    path = path or shipped_datasets() / "recorded" / PROFILES_FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return RecordedProfiles(
            Machine(**content["machine"]),
            content["memory_bytes"],
            Provenance(**content["provenance"]),
            tuple(
                RecordedJob(PlannedJob.from_dict(each["job"]), each["weight"], profile_from_dict(each["profile"]))
                for each in content["jobs"]
            ),
        )
    except FileNotFoundError:
        raise UserError(
            f"{path}: there are no recorded profiles: python datasets/recorded/make_job_profiles.py makes them."
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: these profiles are damaged ({error}): restore the file, or make it anew.") from error


def profile_from_dict(values: dict[str, Any]) -> JobProfile:
    """A profile from what `asdict` gave."""
    solo = values.get("solo")
    return JobProfile(**values | {"solo": None if solo is None else SoloProfile(**solo)})


def profile_from_solo(solo: SoloProfile, duration_s: float | None, memory_estimate_bytes: int) -> JobProfile:
    """What a job asks for, from what it was alone.

    Args:
        solo: of the job. On a GPU its utilisation is the SM activity, as in CARMA, or else the share of the time in
            which a kernel ran; on a CPU, its share of all cores' time.
        duration_s: of the whole job alone; a solo profile is of a few of its steps.
        memory_estimate_bytes: as believed before it runs.

    Raises:
        UserError: the profile says nothing of its utilisation.
    """
    shares = (solo.sm_active, solo.gpu_busy, solo.cpu_share)
    utilisation = next((share for share in shares if share), None) or solo.need("cpu_share")[0]
    note = f"{solo.job} alone on {solo.device}"
    return JobProfile(
        memory_estimate_bytes,
        min(1.0, utilisation),
        duration_s,
        solo.memory_bytes,
        provenance=solo.provenance,
        note=note,
        solo=solo,
    )


def shared_slowdown(machine: Machine | None, mode: str, part: float = 1.0) -> Slowdown:
    """How jobs on one device slow each other down, by the best of what is known of them.

    Where all of them were profiled alone on that machine, the interference model (`predict_slowdowns`) says it; else
    their utilisations do (`slowdown_by_utilisation`), with one job of which too little is known among them.

    Args:
        machine: the device, or of a partition the whole CPU; None where it is not the one of any profile.
        mode: in which they share it.
        part: of the machine's cores that the device is, below 1 for a partition; there a job is slowed alone, too.
    """

    def slowdown(profiles: Sequence[JobProfile]) -> list[float]:
        solos = [profile.solo for profile in profiles]
        if machine is None or any(solo is None or solo.device != machine.device for solo in solos):
            demand = max(1.0, sum(profile.utilisation for profile in profiles) / part)
            return slowdown_by_utilisation(profiles) if part == 1 else [demand] * len(profiles)
        if part == 1 and len(profiles) == 1:
            return [1.0]
        cores = None if part == 1 else [part * machine.cores / len(solos)] * len(solos)
        return [each.slowdown for each in predict_slowdowns(solos, mode, machine, cores=cores)]

    return slowdown


def cpu_admission(slowdown: Slowdown, margin_bytes: int = 0) -> Admission:
    """What a job must pass to join others on CPU cores: the memory, and a gain by the interference.

    A limit on utilisation, CARMA's for GPUs, would keep every core to one job: threads that take turns look busy
    whether there is something to gain or not.
    """
    return Admission(margin_bytes, float("inf"), slowdown=slowdown)

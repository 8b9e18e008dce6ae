"""QUEUE.yaml: jobs in line, when each comes, and what each asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from labkit.collocation.packing.device_state import PackingDevice
from labkit.collocation.packing.job_profile import JobProfile
from labkit.collocation.packing.queued_job import QueuedJob
from labkit.collocation.plan.job_settings import read_setting, read_settings
from labkit.collocation.plan.mistakes import Mistakes, did_you_mean
from labkit.collocation.plan.planned_job import PlannedJob
from labkit.collocation.plan.yaml_file import Fields, group, note_unknown, read_field, read_jobs, read_yaml
from labkit.errors import UserError
from labkit.hardware.sizes import size_text

EXAMPLE = """\
profiles:
  small: {duration: 120, memory: 1.5GiB, utilisation: 0.3}
jobs:
  - job: dlrm:tour
    copies: 3
    profile: small
  - script: train.py
    arrives: 30
    memory: 2GiB
    utilisation: 0.5"""
TOP_LEVEL = ("jobs", "profiles", "seconds")
NUMBERS = ("arrives", "duration", "utilisation")
ROW_FIELDS = ("profile", *NUMBERS)
"""Of a row, beside those of a job in a plan; `memory` is both the job's and its profile's"""
PROFILE_FIELDS = {
    "duration": float,
    "memory": "size",
    "estimate": "size",
    "utilisation": float,
    "provenance": str,
    "note": str,
}


def read_queue(path: Path) -> list[QueuedJob]:
    """Read a queue file.

    `jobs` is a list as in a plan, and `seconds` is as there. Beside a job's own fields a row may have `arrives`
    (seconds, 0 by default) and what is known of the job alone: `duration` (seconds), `memory`, `utilisation` (0 to 1),
    or a `profile`: these fields as a group, or the name of such a group under the top-level `profiles`. A profile also
    takes `estimate` (memory as believed before the job runs, where that is not the truth), `provenance` and `note`.
    `memory` beside a profile is such an estimate, as it is in a plan.

    Args:
        path: of the file; scripts and data with relative paths are looked for in its folder.

    Returns:
        The jobs in the order of the file. One of which nothing is known has no profile.

    Raises:
        UserError: with every mistake of every row.
    """
    fields, mistakes = read_yaml(path, EXAMPLE), Mistakes(str(path))
    note_unknown(fields, TOP_LEVEL, mistakes)
    profiles: dict[str, JobProfile | None] = {}  # None for a wrong one, so that its rows are not blamed, too
    given = read_field(fields, "profiles", mistakes, partial(group, example="small: {memory: 2GiB}"), {})
    for name, values in given.items():
        profiles[name] = None
        with mistakes.noting(f"{path}, line {given.lines[name]}, profile {name!r}"):
            profiles[name] = _group(values)
    seconds = read_field(fields, "seconds", mistakes, partial(read_setting, kind=float))
    if "jobs" not in fields:
        mistakes.add(fields.place, "there is no job in it: list some under jobs.")
    queue = []
    for row, job in read_jobs(fields, mistakes, None if seconds is None else f"{seconds}", ROW_FIELDS):
        with mistakes.noting(row.place):
            queue.append(_queued(row, job, profiles))
    mistakes.raise_if_any()
    return [job for job in queue if job is not None]


def memory_faults(queue: Sequence[QueuedJob], devices: Sequence[PackingDevice]) -> list[str]:
    """One line for each job that is believed to need more memory than the largest device has."""
    largest = max(devices, key=lambda device: device.memory_bytes)
    return [
        f"{job.job.where or job.name}: job {job.name} is estimated at {size_text(job.profile.memory_estimate_bytes)}, "
        f"and the largest device, {largest.name}, has {size_text(largest.memory_bytes)}: make its batch smaller, or "
        "write the memory that it was measured to need."
        for job in queue
        if job.profile and job.profile.memory_estimate_bytes > largest.memory_bytes
    ]


def _queued(row: Fields, job: PlannedJob, profiles: Mapping[str, JobProfile | None]) -> QueuedJob | None:
    """A job as its row has it; None where its profile, which other rows may name, is wrong."""
    own = read_settings({name: row[name] for name in NUMBERS if name in row}, dict.fromkeys(NUMBERS, float))
    arrives_s = own.pop("arrives", 0.0)
    if arrives_s < 0:
        raise UserError(f"field 'arrives': it is {arrives_s:g}: give seconds from 0.")
    given = row.get("profile")
    if isinstance(given, str):
        if given not in profiles:
            known = did_you_mean(given, profiles) if profiles else "write it under the top-level profiles."
            raise UserError(f"field 'profile': profile {given!r} is unknown: {known}")
        if profiles[given] is None:
            return None
        profile = profiles[given]
    else:
        profile = None if given is None else _group(given)
    return QueuedJob(job, arrives_s, _profile(profile, own, job.memory_bytes))


def _group(values: Any) -> JobProfile | None:
    return _profile(None, read_settings(group(values, "memory: 2GiB"), PROFILE_FIELDS), None)


def _profile(given: JobProfile | None, own: dict[str, Any], memory_bytes: int | None) -> JobProfile | None:
    """A profile as given, changed by a row's own fields; without one, from these alone.

    Raises:
        UserError: what makes a profile is missing or wrong.
    """
    if given is not None:
        changes = {"duration_s": own.get("duration"), "utilisation": own.get("utilisation")}
        changes["memory_estimate_bytes"] = memory_bytes
        return replace(given, **{name: value for name, value in changes.items() if value is not None})
    memory_bytes = own.get("memory", memory_bytes)
    estimate_bytes = own.get("estimate", memory_bytes)
    if not own:
        return None  # a cap on a job's memory says nothing of how busy it keeps a device
    needed = (("memory", estimate_bytes), ("utilisation", own.get("utilisation")))
    if missing := [name for name, value in needed if value is None]:
        raise UserError(f"there is no {' and no '.join(missing)} of the job alone: write it, or leave its profile out.")
    return JobProfile(
        estimate_bytes,
        own["utilisation"],
        own.get("duration"),
        memory_bytes,
        own.get("provenance", "predicted"),
        own.get("note", ""),
    )

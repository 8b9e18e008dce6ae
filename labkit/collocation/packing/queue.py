"""QUEUE.yaml: jobs in line, when each comes, and what each asks for."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from labkit.collocation.packing.queued_job import JobProfile, QueuedJob
from labkit.collocation.plan.job_settings import read_setting, read_settings
from labkit.collocation.plan.mistakes import Mistakes
from labkit.collocation.plan.planned_job import PlannedJob
from labkit.collocation.plan.yaml_plan import Fields, note_unknown, read_field, read_jobs, read_yaml
from labkit.errors import UserError

EXAMPLE = """\
jobs:
  - job: dlrm:tour
    copies: 3
  - script: train.py
    arrives: 30
    memory: 2GiB
    utilisation: 0.5
    duration: 60"""
NUMBERS = ("arrives", "duration", "utilisation")
"""Of a row, beside the fields of a job in a plan; `memory` is both the job's and its profile's"""


def read_queue(path: Path) -> list[QueuedJob]:
    """Read a queue file.

    `jobs` is a list as in a plan, and `seconds` is as there. Beside a job's own fields a row may have `arrives`
    (seconds, 0 by default) and what is known of the job alone: `memory`, `utilisation` (0 to 1), `duration` (seconds).
    `memory` alone is a cap, as in a plan, and is believed to be what the job needs.

    Args:
        path: of the file; scripts and data with relative paths are looked for in its folder.

    Returns:
        The jobs in the order of the file. One of which nothing is known has no profile.

    Raises:
        UserError: with every mistake of every row.
    """
    fields, mistakes = read_yaml(path, EXAMPLE), Mistakes(str(path))
    note_unknown(fields, ("jobs", "seconds"), mistakes)
    seconds = read_field(fields, "seconds", mistakes, partial(read_setting, kind=float))
    if "jobs" not in fields:
        mistakes.add(fields.place, "there is no job in it: list some under jobs.")
    queue = []
    for row, job in read_jobs(fields, mistakes, None if seconds is None else f"{seconds}", NUMBERS):
        with mistakes.noting(row.place):
            queue.append(_queued(row, job))
    mistakes.raise_if_any()
    return queue


def _queued(row: Fields, job: PlannedJob) -> QueuedJob:
    known = read_settings({name: row[name] for name in NUMBERS if name in row}, dict.fromkeys(NUMBERS, float))
    arrives_s, memory_bytes = known.pop("arrives", 0.0), job.memory_bytes
    if not known:
        return QueuedJob(job, arrives_s)
    needed = (("memory", memory_bytes), ("utilisation", known.get("utilisation")))
    if missing := [name for name, value in needed if value is None]:
        raise UserError(f"there is no {' and no '.join(missing)} of the job alone: write it, or leave the rest out.")
    profile = JobProfile(memory_bytes, known["utilisation"], known.get("duration"), memory_bytes)
    return QueuedJob(job, arrives_s, profile)

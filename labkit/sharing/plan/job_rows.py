"""Rows of a plan, whatever its format: from their fields come jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from labkit.errors import UserError
from labkit.jobs import as_flags, find_script, named_job
from labkit.launch.rows import Kind, Mistakes, Row, numbered, read_setting, read_settings, safe_name
from labkit.sharing.plan.planned_job import PlannedJob
from labkit.tracking import SEED

JOB_FIELDS = {"job": str, "script": str, "arguments": "words", "args": "words", "copies": "copies", "name": str}
PLACED = {"device": str, "cores": int, "memory": "size", "gpu_percent": float, "mig_profile": str}
"""What any job may ask of the device"""
ELSEWHERE = {
    "budget": "the mode decides what a job may use: leave budget away, or give cores and memory for mode cpu-pinned."
}
"""Fields of other commands that plans do not have"""


def read_jobs(
    rows: Iterable[Row],
    folders: Sequence[Path],
    mistakes: Mistakes,
    *,
    others: Mapping[str, Kind] | None = None,
) -> list[tuple[PlannedJob, dict[str, Any]]]:
    """The jobs of rows, each with a name of its own; those of wrong rows, which are noted, are missing.

    A row has JOB_FIELDS, PLACED, and any flag of labkit's job by its name. A script is looked for in the folders; data
    in the first. `others` are kinds of fields of a row that are no job's; their values are given with each job.
    """
    found = []
    for row in rows:
        with mistakes.noting(row, "script" if "script" in row else "job"):
            found += _jobs_of(row, folders, mistakes, others or {})
    names = numbered([job.name for job, _ in found])
    return [(replace(job, name=name), more) for (job, more), name in zip(found, names, strict=True)]


def _jobs_of(
    row: Row, folders: Sequence[Path], mistakes: Mistakes, others: Mapping[str, Kind]
) -> list[tuple[PlannedJob, dict[str, Any]]]:
    if ("job" in row) == ("script" in row):
        mistakes.add(row.place, "give it one of job (such as dlrm:tour) and script (such as train.py).")
        return []
    if {"args", "arguments"} <= row.keys():
        mistakes.add_field(row, "args", "it is another spelling of arguments: leave one of the two away.")
        return []
    what = read_setting(row.get("job") or row.get("script"), str)
    script, kind, flags = what, None, {}
    if not what.endswith(".py"):
        kind, preset = named_job(what)
        script = kind.name
        if preset and "preset" in row:
            mistakes.add_field(row, "preset", f"the job names preset {preset!r}, too: leave one of the two away.")
            return []
        flags = kind.kinds()
    values = read_settings(row, flags | PLACED | JOB_FIELDS | others, mistakes, ELSEWHERE)
    if len(values) < len(row):
        return []
    copies, arguments = values.get("copies", 1), tuple(values.get("arguments", values.get("args", ())))
    if kind is None:
        script, seed = str(find_script(what, folders)), 0
        name = safe_name(Path(script).stem)
    elif arguments:
        raise UserError(
            f"{' '.join(arguments)!r} is not understood after {what}: only a script has arguments. Settings stand in "
            f"brackets, as in {what}[batch_size=256] (in YAML as fields), and copies as in {what} x3.",
            field="args" if "args" in row else "arguments",
        )
    else:
        settings = {name: values[name] for name in flags if name in values}
        job = kind.from_settings({"preset": preset or "tour"} | settings, folders[0])
        rest = {name: value for name, value in job.settings().items() if name not in ("preset", "seed")}
        arguments = as_flags({"preset": job.preset} | dict(sorted(rest.items())) | {"seed": SEED})
        seed, name = job.seed, safe_name(f"{script}-{job.preset}")
    asked = {("memory_bytes" if each == "memory" else each): values[each] for each in PLACED if each in values}
    job = PlannedJob(values.get("name", name), script, arguments, seed, where=row.place, **asked)
    more = {name: values[name] for name in others if name in values}
    return [(replace(job, seed=seed + number * job.takes_seed), more) for number in range(copies)]

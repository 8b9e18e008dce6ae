"""Plans in YAML."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from labkit.collocation.plan.job_names import safe_name
from labkit.collocation.plan.job_settings import read_setting
from labkit.collocation.plan.mistakes import Mistakes
from labkit.collocation.plan.plan import DEFAULT_TIMEOUT_S, MODES, Plan, Workload
from labkit.collocation.plan.yaml_file import Fields, group, items, note_unknown, read_field, read_jobs, read_yaml
from labkit.errors import UserError

EXAMPLE = """\
mode: [alone, cpu-shared]
jobs:
  - job: dlrm:tour
    copies: 3
  - script: train.py
    arguments: --lr 0.1"""
PLAN_FIELDS = ("name", "device", "mode", "repeats", "timeout", "spin", "seconds", "jobs", "workloads")
WORKLOAD_FIELDS = ("name", "mode", "jobs")
TRUTHS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def read_yaml_plan(path: Path, default_mode: str | None = None) -> Plan:
    """Read a plan in YAML.

    Args:
        path: of the file; scripts and data with relative paths are looked for in its folder.
        default_mode: that counts where the file says none.

    Raises:
        UserError: with every mistake of every row.
    """
    fields, mistakes = read_yaml(path, EXAMPLE), Mistakes(str(path))
    note_unknown(fields, PLAN_FIELDS, mistakes)

    def read(name: str, kind: Any, default: Any = None) -> Any:
        return read_field(fields, name, mistakes, lambda value: read_setting(value, kind), default)

    settings = {
        "name": read("name", str, safe_name(path.stem)),
        "device": read("device", str),
        "repeats": read("repeats", int, 1),
        "timeout_s": read("timeout", float, DEFAULT_TIMEOUT_S),
        "spin": TRUTHS[read("spin", tuple(TRUTHS), "no")],
    }
    seconds = read("seconds", float)
    seconds = None if seconds is None else f"{seconds:g}"
    workloads: list[Workload] = []
    modes = read_field(fields, "mode", mistakes, _modes, [] if default_mode is None else [default_mode])
    if ("jobs" in fields) == ("workloads" in fields):
        why = "both are there: put all jobs in one of the two" if "jobs" in fields else "there is no job"
        mistakes.add(fields.place, f"{why}: list jobs that run together under jobs, or several groups under workloads.")
    elif "jobs" in fields:
        workloads = _workloads(fields, None, modes, seconds, mistakes)
    for number, row in enumerate(read_field(fields, "workloads", mistakes, items, ()), 1):
        with mistakes.noting(getattr(row, "place", fields.place)):
            workload = group(row, "name: pair")
            note_unknown(workload, WORKLOAD_FIELDS, mistakes)
            if "jobs" not in workload:
                raise UserError("there is no job in it: list some under jobs.")
            own = read_field(workload, "mode", mistakes, _modes, modes)
            name = read_setting(workload.get("name", f"workload-{number}"), str)
            workloads += _workloads(workload, name, own, seconds, mistakes)
    mistakes.raise_if_any()
    try:
        return Plan(workloads=tuple(workloads), **settings)
    except UserError as error:
        raise UserError(f"{fields.place}: {error}") from None


def _workloads(
    fields: Fields, name: str | None, modes: list[str], seconds: str | None, mistakes: Mistakes
) -> list[Workload]:
    """The jobs of a list in each of the modes."""
    if not modes and "mode" not in fields:
        mistakes.add(fields.place, f"there is no mode: say how the jobs share, with one or more of {', '.join(MODES)}.")
    jobs = tuple(job for _, job in read_jobs(fields, mistakes, seconds))
    names = {mode: mode if name is None else name if len(modes) == 1 else f"{name}-{mode}" for mode in modes}
    with mistakes.noting(fields.place):
        return [Workload(names[mode], mode, jobs) for mode in modes if jobs]
    return []


def _modes(value: Any) -> list[str]:
    return [read_setting(each, MODES) for each in (value if isinstance(value, list) else [value])]

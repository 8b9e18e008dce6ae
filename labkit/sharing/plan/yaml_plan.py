"""Plans in YAML."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from labkit.errors import UserError
from labkit.launch.rows import Mistakes, Row, read_settings, read_yaml, safe_name
from labkit.sharing.plan.job_rows import ELSEWHERE, read_jobs
from labkit.sharing.plan.plan import MODES, Plan, Workload

PLAN_EXAMPLE = """\
mode: [alone, cpu-shared]
jobs:
  - job: dlrm:tour
    copies: 3
  - script: train.py
    arguments: --lr 0.1"""
GROUP_FIELDS = {"name": str, "mode": [MODES], "jobs": Row}
PLAN_FIELDS = GROUP_FIELDS | {"device": str, "repeats": "count", "timeout": "duration", "workloads": Row}


def read_yaml_plan(path: Path, modes: Sequence[str] = (), default_mode: str = "cpu-shared") -> Plan:
    """Read a plan in YAML; a UserError has every mistake of every row.

    `modes` count instead of the file's, and `default_mode` where it says none. Scripts and data with relative paths are
    looked for in the file's folder.
    """
    top, mistakes = read_yaml(path, PLAN_EXAMPLE), Mistakes(str(path))
    plan = read_settings(top, PLAN_FIELDS, mistakes, ELSEWHERE)
    if ("jobs" in top) == ("workloads" in top):
        why = "both are there: put all jobs in one of the two" if "jobs" in top else "there is no job"
        mistakes.add(top.place, f"{why}: list jobs that run together under jobs, or several groups under workloads.")
    workloads = []
    for number, row in enumerate([top] if "jobs" in top else plan.get("workloads", ()), 1):
        group = plan if row is top else read_settings(row, GROUP_FIELDS, mistakes, ELSEWHERE)
        if "jobs" not in row:
            mistakes.add(row.place, "there is no job in it: list some under jobs.")
        found = read_jobs(group.get("jobs", ()), (path.parent,), mistakes)
        own_modes = modes or group.get("mode") or plan.get("mode") or [default_mode]
        for mode in own_modes if found else ():
            name = group.get("name", f"workload-{number}") + (f"-{mode}" if len(own_modes) > 1 else "")
            where = next((each.places["mode"] for each in (row, top) if "mode" in each), None)
            jobs = tuple(job for job, _ in found)
            workloads.append(Workload(mode if row is top else name, mode, jobs, None if modes else where))
    mistakes.raise_if_any()
    given = {name: plan[name] for name in ("device", "repeats") if name in plan}
    given |= {"timeout_s": plan["timeout"]} if "timeout" in plan else {}
    try:
        return Plan(plan.get("name", safe_name(path.stem)), tuple(workloads), **given)
    except UserError as error:
        raise UserError(f"{top.place}: {error}") from None

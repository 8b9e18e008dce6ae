"""Plans in YAML, read so that every row knows its line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import yaml

from labkit.collocation.plan.plan import MODES, Plan, Workload
from labkit.collocation.plan.rows import Mistakes, Row, read_jobs, read_settings, read_text, safe_name
from labkit.errors import UserError

PLAN_EXAMPLE = """\
mode: [alone, cpu-shared]
jobs:
  - job: dlrm:tour
    copies: 3
  - script: train.py
    arguments: --lr 0.1"""
GROUP_FIELDS = {"name": str, "mode": [MODES], "jobs": Row}
PLAN_FIELDS = GROUP_FIELDS | {"device": str, "repeats": "count", "timeout": "duration", "workloads": Row}


class _Loader(yaml.SafeLoader):
    """Makes texts of scalars: 0.80 stays "0.80", and 1e-3, a text in YAML 1.1, can be a number."""

    yaml_implicit_resolvers: ClassVar = {
        first: [(tag, form) for tag, form in resolvers if tag.endswith((":merge", ":null"))]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def row(self, node: yaml.MappingNode) -> Row:
        """A mapping; `<<` brings in the fields of another, which its own replace."""
        names: list[Any] = []
        for key in (key for key, _ in node.value if not key.tag.endswith(":merge")):
            if key.value in names:
                raise yaml.MarkedYAMLError(
                    problem=f"field {key.value!r} stands there twice", problem_mark=key.start_mark
                )
            names.append(key.value)
        made = self.construct_mapping(node, deep=True)
        fields = {str(name): value for name, value in made.items() if value not in (None, "")}
        # by now the other's fields are among the node's own, each with its line
        places = {str(key.value): f"{_place(key)}, field {key.value!r}" for key, _ in node.value}
        return Row(fields, _place(node), places)


def _place(node: yaml.Node) -> str:
    return f"{node.start_mark.name}, line {node.start_mark.line + 1}"


_Loader.add_constructor("tag:yaml.org,2002:map", _Loader.row)


def read_yaml(path: Path, example: str) -> Row:
    """The fields of a file; a UserError, with an example of what such a file holds, where it is no YAML."""
    text = read_text(path)
    try:
        loader = _Loader(text)
        loader.name = str(path)
        found = loader.get_single_data()
    except (RecursionError, ValueError, yaml.YAMLError) as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        line = f", line {mark.line + 1}" if mark else ""
        raise UserError(
            f"{path}{line}: this is no YAML ({problem or error}): mend it; indent with spaces, and a plan looks "
            f"like\n{example}"
        ) from None
    if not isinstance(found, Row):
        raise UserError(f"{path}: it holds no fields: a plan looks like\n{example}")
    return found


def read_yaml_plan(path: Path, modes: Sequence[str] = (), default_mode: str = "cpu-shared") -> Plan:
    """Read a plan in YAML; a UserError has every mistake of every row.

    `modes` count instead of the file's, and `default_mode` where it says none. Scripts and data with relative paths are
    looked for in the file's folder.
    """
    top, mistakes = read_yaml(path, PLAN_EXAMPLE), Mistakes(str(path))
    plan = read_settings(top, PLAN_FIELDS, mistakes)
    if ("jobs" in top) == ("workloads" in top):
        why = "both are there: put all jobs in one of the two" if "jobs" in top else "there is no job"
        mistakes.add(top.place, f"{why}: list jobs that run together under jobs, or several groups under workloads.")
    workloads = []
    for number, row in enumerate([top] if "jobs" in top else plan.get("workloads", ()), 1):
        group = plan if row is top else read_settings(row, GROUP_FIELDS, mistakes)
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

"""Plans in YAML, read so that every field knows its line; lists of jobs are read for queues, too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import yaml

from labkit.collocation.plan.job_names import numbered, safe_name
from labkit.collocation.plan.job_settings import BY_THE_MODE, jobs_of, read_setting
from labkit.collocation.plan.mistakes import Mistakes, did_you_mean
from labkit.collocation.plan.plan import DEFAULT_TIMEOUT_S, MODES, Plan, Workload
from labkit.collocation.plan.planned_job import PlannedJob
from labkit.collocation.plan.short_form import split_words
from labkit.errors import UserError

EXAMPLE = """\
mode: [alone, cpu-shared]
jobs:
  - job: dlrm:tour
    copies: 3
  - script: train.py
    arguments: --lr 0.1"""
JOB_FIELDS = ("job", "script", "arguments", "args", "copies", "name")
PLAN_FIELDS = ("name", "device", "mode", "repeats", "timeout", "seconds", "jobs", "workloads")
WORKLOAD_FIELDS = ("name", "mode", "jobs")


class Fields(dict[str, Any]):
    """The fields of a group by name, without empty ones: texts as they were written, lists, and such groups."""

    def __init__(self, file: Path, line: int):
        super().__init__()
        self.file, self.line, self.place = file, line, f"{file}, line {line}"
        """Where the group begins"""
        self.lines: dict[str, int] = {}
        """In which each field stands"""

    def place_of(self, name: str) -> str:
        """File, line and name of a field."""
        return f"{self.file}, line {self.lines[name]}, field {name!r}"


class _Loader(yaml.SafeLoader):
    """Makes texts of scalars: 0.80 stays "0.80", and 1e-3, a text in YAML 1.1, can be a number."""

    file: Path
    yaml_implicit_resolvers: ClassVar = {
        first: [(tag, form) for tag, form in resolvers if tag.endswith((":merge", ":null"))]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def fields(self, node: yaml.MappingNode) -> Fields:
        """A mapping; `<<` brings in the fields of another, which its own replace."""
        found = Fields(self.file, node.start_mark.line + 1)
        names = [key.value for key, _ in node.value if not key.tag.endswith(":merge")]
        if twice := [name for name in names if names.count(name) > 1]:
            raise UserError(f"{found.place}, field {twice[0]!r}: it stands there twice: leave one away.")
        self.flatten_mapping(node)
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise UserError(f"{found.place}: a list or group is no name of a field: write name: value.")
            made = self.construct_object(value, deep=True)
            if made not in (None, ""):
                found[key.value], found.lines[key.value] = made, key.start_mark.line + 1
        return found


_Loader.add_constructor("tag:yaml.org,2002:map", _Loader.fields)


def read_yaml(path: Path, example: str) -> Fields:
    """The fields of a file; a UserError, with an example of what such a file holds, where it is no YAML."""
    try:
        loader = _Loader(read_text(path))
        loader.file = path
        found = loader.get_single_data()
    except RecursionError:
        raise UserError(f"{path}: its lists are nested too deep: a plan looks like\n{example}") from None
    except yaml.YAMLError as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        line = f", line {mark.line + 1}" if mark else ""
        raise UserError(
            f"{path}{line}: this is no YAML ({problem or error}): mend it; indent with spaces, and a plan looks "
            f"like\n{example}"
        ) from None
    if not isinstance(found, Fields):
        raise UserError(f"{path}: it holds no fields: a plan looks like\n{example}")
    return found


def read_text(path: Path) -> str:
    """The text of a plan; a UserError where there is no such file, or it is not UTF-8."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise UserError(f"There is no file {path}: check the path.") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: byte {error.start} is not UTF-8: save the file as UTF-8.") from None


def read_field(fields: Fields, name: str, mistakes: Mistakes, read: Callable[[Any], Any], default: Any = None) -> Any:
    """A field as `read` makes it; the default where it is absent, or wrong, which is noted."""
    if name in fields:
        with mistakes.noting(fields.place_of(name)):
            return read(fields[name])
    return default


def note_unknown(fields: Fields, known: Sequence[str], mistakes: Mistakes) -> None:
    """Note the fields that a group does not have."""
    for name in fields:
        if name not in known:
            what = BY_THE_MODE if name == "budget" else f"it is unknown: {did_you_mean(name, known)}"
            mistakes.add(fields.place_of(name), what)


def items(value: Any) -> list[Any]:
    """The items of a list; a UserError where it is none."""
    if not isinstance(value, list) or not value:
        raise UserError("a list belongs here: begin each item with a dash.")
    return value


def group(value: Any, example: str) -> Fields:
    """A group of fields; a UserError, with the example, where it is none."""
    if not isinstance(value, Fields):
        raise UserError(f"fields belong here: write them as in {example}.")
    return value


def read_jobs(
    fields: Fields, mistakes: Mistakes, seconds: str | None = None, others: Sequence[str] = ()
) -> list[tuple[Fields, PlannedJob]]:
    """The jobs of the list under `jobs`, each with its row and a name of its own; those of wrong rows are missing.

    `seconds` is `max_seconds` of labkit's jobs whose row says none; `others` are fields of a row that are no job's.
    """
    found: list[tuple[Fields, PlannedJob]] = []
    lines: dict[str, int] = {}  # by the names that rows give
    for row in read_field(fields, "jobs", mistakes, items, ()):
        with mistakes.noting(getattr(row, "place", fields.place_of("jobs"))):
            jobs = _row_jobs(group(row, "job: dlrm:tour"), fields.file.parent, seconds, others)
            if "name" in row and (again := [job.name for job in jobs if job.name in lines]):
                raise UserError(
                    f"field 'name': the job of line {lines[again[0]]} is called {again[0]!r}, too: rename one."
                )
            lines |= {job.name: row.line for job in jobs if "name" in row}
            found += [(row, job) for job in jobs]
    free = iter(numbered([job.name for row, job in found if "name" not in row], lines))
    return [(row, job if "name" in row else replace(job, name=next(free))) for row, job in found]


def _row_jobs(row: Fields, folder: Path, seconds: str | None, others: Sequence[str]) -> list[PlannedJob]:
    if ("job" in row) == ("script" in row):
        raise UserError("give it one of job (such as dlrm:tour) and script (such as train.py).")
    if {"args", "arguments"} <= row.keys():
        raise UserError("args is another spelling of arguments: leave one of the two away.")
    what = read_setting(row.get("job") or row.get("script"), str)
    given = row.get("arguments", row.get("args", ""))
    arguments = [read_setting(each, str) for each in given] if isinstance(given, list) else split_words(given)
    settings = {name: value for name, value in row.items() if name not in (*JOB_FIELDS, *others)}
    for name in {"data", "schema"} & settings.keys():
        settings[name] = _beside(settings[name], folder)
    if seconds is not None and "job" in row:
        settings = {"max_seconds": seconds} | settings
    copies = read_setting(row.get("copies", "1"), int)
    jobs = jobs_of(what, row.place, (folder,), settings=settings, arguments=arguments, copies=copies)
    if "name" not in row:
        return jobs
    name = read_setting(row["name"], str)
    return [replace(job, name=f"{name}-{n}" if copies > 1 else name) for n, job in enumerate(jobs, 1)]


def _beside(data: Any, folder: Path) -> Any:
    """A path of the user's data from the working folder, where it is beside the plan; names stay."""
    if isinstance(data, str) and ("/" in data or Path(data).suffix) and (folder / data).exists():
        return str(folder / data)
    return data


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

"""Jobs of a plan in YAML."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from labkit.collocation.plan.job_names import numbered, safe_name
from labkit.collocation.plan.job_settings import (
    SCRIPT,
    find_script,
    labkits_job,
    placed,
    read_setting,
    setting_kind,
    split_label,
)
from labkit.collocation.plan.planned_job import NAME, PlannedJob
from labkit.collocation.plan.quoted_text import split_words
from labkit.collocation.plan.short_form import check_copies, copies_of
from labkit.collocation.plan.yaml_file import Node, YamlFile, items, text
from labkit.errors import UserError

JOB_FIELDS = ("job", "script", "arguments", "args", "copies", "name")


@dataclass(frozen=True)
class _Row:
    """One item of a list of jobs: as many as it asks for."""

    place: str
    jobs: list[PlannedJob]
    named: bool
    """By the user"""


class YamlJobs:
    """Reads lists of jobs, noting mistakes with the file."""

    def __init__(self, file: YamlFile, seconds: float | None, others: tuple[str, ...] = ()):
        """Prepare.

        Args:
            file: that the lists are in.
            seconds: `max_seconds` of labkit's jobs, where their row says none.
            others: fields of a row that are no job's; they are left in `beside`.
        """
        self.file = file
        self.fields = (*JOB_FIELDS, *others)
        self.beside: dict[str, dict[str, Node]] = {}
        """By a row's place, as its jobs say it"""
        self.mistakes = file.mistakes
        self.seconds = seconds

    def read(self, node: Node) -> tuple[PlannedJob, ...]:
        """The jobs of a list, each with a name of its own; those of wrong items are missing."""
        try:
            nodes = items(node)
        except UserError as error:
            self.mistakes.add(self.file.place(node), str(error), within="field 'jobs'")
            return ()
        lines = Counter(map(self.file.place, nodes))
        rows = []
        for number, each in enumerate(nodes, 1):
            place = self.file.place(each)
            # rows may share a line, or by an alias be the same
            rows.append(self._row(each, place if lines[place] == 1 else f"{place}, item {number}"))
        rows = [row for row in rows if row is not None]
        owners: dict[str, str] = {}
        for row in [row for row in rows if row.named]:
            if again := [job.name for job in row.jobs if job.name in owners]:
                other = owners[again[0]].removeprefix(f"{self.file.path}, ")
                what = f"the job of {other} is called {again[0]!r}, too: rename one of them."
                self.mistakes.add(row.place, what, within="field 'name'")
                rows.remove(row)
            owners |= {job.name: row.place for job in row.jobs}
        free = iter(numbered([job.name for row in rows if not row.named for job in row.jobs], owners))
        return tuple(job if row.named else replace(job, name=next(free)) for row in rows for job in row.jobs)

    def _row(self, node: Node, place: str) -> _Row | None:
        fields = self.file.fields(node, place, None, "job: dlrm:tour")
        if fields is None:
            return None
        self.beside[place] = {name: fields[name] for name in self.fields[len(JOB_FIELDS) :] if name in fields}
        if ("job" in fields) == ("script" in fields):
            self.mistakes.add(place, "give it one of job (such as dlrm:tour) and script (such as train.py).")
        kind, preset = (SCRIPT, None) if "script" in fields else self._kind(fields, place)
        copies = self.file.value(fields, "copies", _copies, place) or 1
        name = self.file.value(fields, "name", safe_text, place)
        script = self.file.value(fields, "script", self._script, place)
        if {"args", "arguments"} <= fields.keys():
            self.mistakes.add(place, "args is another spelling of arguments: leave one of the two away.")
        spelling = "args" if "args" in fields else "arguments"
        arguments = self.file.value(fields, spelling, _arguments, place) or ()
        if kind != SCRIPT and spelling in fields:
            self.mistakes.add(
                place, "only a script has them: give the job's settings as fields.", within=f"field {spelling!r}"
            )
        settings = self._settings(fields, kind, place)
        if self.mistakes.of(place):
            return None
        with self.mistakes.noting(place):
            if kind == SCRIPT:
                job = PlannedJob(safe_name(script.stem), str(script), arguments, where=place, **placed(settings))
            else:
                if self.seconds is not None:
                    settings = {"max_seconds": self.seconds} | settings
                job = labkits_job(kind, preset, settings, place)
            jobs = copies_of(job, copies)
            if name is not None:
                jobs = [replace(job, name=f"{name}-{n}" if copies > 1 else name) for n, job in enumerate(jobs, 1)]
            return _Row(place, jobs, name is not None)
        return None

    def _kind(self, fields: dict[str, Node], place: str) -> tuple[str, str | None]:
        # where the job is unknown, its settings are checked all the same, as those of one
        return self.file.value(fields, "job", lambda node: split_label(text(node)), place) or ("dlrm", None)

    def _settings(self, fields: dict[str, Node], kind: str, place: str) -> dict[str, Any]:
        settings = {
            name: self.file.value(
                fields,
                name,
                lambda node, name=name: read_setting(text(node), setting_kind(name, kind, self.fields)),
                place,
            )
            for name in fields
            if name not in self.fields
        }
        for name in {"data", "schema"} & settings.keys():
            settings[name] = self._beside(settings[name])
        return settings

    def _beside(self, data: str | None) -> str | None:
        """A path of the user's data from the working folder, where it is beside the plan; names stay."""
        looks_like_path = data is not None and ("/" in data or Path(data).suffix)
        beside = self.file.path.parent / data if looks_like_path else None
        return str(beside) if beside is not None and beside.exists() else data

    def _script(self, node: Node) -> Path:
        return find_script(text(node), (self.file.path.parent,))


def safe_text(node: Node) -> str:
    """A name that files may have.

    Raises:
        UserError: it is none.
    """
    name = text(node)
    if not NAME.fullmatch(name):
        raise UserError(
            f"{name!r} names files, too: use up to 60 letters, digits and . _ + - only, a letter or digit first."
        )
    return name


def _copies(node: Node) -> int:
    return check_copies(read_setting(text(node), int), "3")


def _arguments(node: Node) -> tuple[str, ...]:
    return tuple(text(each) for each in node.value) if isinstance(node.value, list) else tuple(split_words(text(node)))

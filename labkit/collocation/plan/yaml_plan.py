"""Plans in YAML."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from labkit.collocation.plan.job_names import safe_name
from labkit.collocation.plan.job_settings import read_setting
from labkit.collocation.plan.mistakes import did_you_mean
from labkit.collocation.plan.plan import DEFAULT_TIMEOUT_S, MODES, Plan, Workload
from labkit.collocation.plan.yaml_file import Node, YamlFile, items, text, truth
from labkit.collocation.plan.yaml_jobs import YamlJobs, safe_text
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


def read_yaml_plan(path: Path, default_mode: str | None = None) -> Plan:
    """Read a plan in YAML.

    Args:
        path: of the file; scripts and data with relative paths are looked for in its folder.
        default_mode: that counts where the file says none.

    Raises:
        UserError: with every mistake of every row.
    """
    return _Reader(YamlFile(path, EXAMPLE), default_mode).plan()


class _Reader:
    """Reads one file, noting mistakes with it."""

    def __init__(self, file: YamlFile, default_mode: str | None):
        self.file = file
        self.default_mode = default_mode
        self.mistakes = file.mistakes

    def plan(self) -> Plan:
        place = self.file.place(self.file.root)
        fields = self.file.fields(self.file.root, place, PLAN_FIELDS, "mode: alone") or {}
        settings = {
            "name": self.file.value(fields, "name", safe_text) or safe_name(self.file.path.stem),
            "device": self.file.value(fields, "device", text),
            "repeats": self.file.value(fields, "repeats", lambda node: _above_zero(node, int)) or 1,
            "timeout_s": self.file.value(fields, "timeout", lambda node: _above_zero(node, float)) or DEFAULT_TIMEOUT_S,
            "spin": self.file.value(fields, "spin", truth) or False,
        }
        self.jobs = YamlJobs(self.file, self.file.value(fields, "seconds", lambda node: _above_zero(node, float)))
        workloads = self._workloads(fields, place)
        self.mistakes.raise_if_any()
        return Plan(workloads=tuple(workloads), **settings)

    def _workloads(self, fields: dict[str, Node], place: str) -> list[Workload]:
        modes = self._modes(fields, place, required="workloads" not in fields)
        if ("jobs" in fields) == ("workloads" in fields):
            why = "both are there: put all jobs in one of the two" if "jobs" in fields else "there is no job"
            self.mistakes.add(
                place, f"{why}: list jobs that run together under jobs, or several groups under workloads."
            )
            return []
        if "jobs" in fields:
            jobs = self.jobs.read(fields["jobs"])
            return [Workload(mode, mode, jobs) for mode in modes if jobs]
        workloads: list[Workload] = []
        for number, node in enumerate(self.file.value(fields, "workloads", items) or [], 1):
            workloads += self._workload(node, modes, number)
        names = Counter(workload.name for workload in workloads)
        for name in [name for name, times in names.items() if times > 1]:
            self.mistakes.add(place, f"{names[name]} workloads are called {name!r}: give each a name of its own.")
        return workloads

    def _workload(self, node: Node, modes: list[str], number: int) -> list[Workload]:
        place = self.file.place(node)
        fields = self.file.fields(node, place, WORKLOAD_FIELDS, "name: pair")
        if fields is None:
            return []
        if "mode" in fields or not modes:
            modes = self._modes(fields, place, required=True)
        name = self.file.value(fields, "name", safe_text, place) or f"workload-{number}"
        if "jobs" not in fields:
            self.mistakes.add(place, "there is no job in it: list some under jobs.")
            return []
        jobs = self.jobs.read(fields["jobs"])
        return [Workload(name if len(modes) == 1 else f"{name}-{mode}", mode, jobs) for mode in modes if jobs]

    def _modes(self, fields: dict[str, Node], place: str, *, required: bool) -> list[str]:
        if "mode" not in fields:
            if self.default_mode is None and required:
                self.mistakes.add(
                    place, f"there is no mode: say how the jobs share, with one or more of {', '.join(MODES)}."
                )
            return [] if self.default_mode is None else [self.default_mode]
        return self.file.value(fields, "mode", _modes) or []


def _modes(node: Node) -> list[str]:
    modes = [text(each) for each in items(node)] if isinstance(node.value, list) else [text(node)]
    for mode in modes:
        if mode not in MODES:
            raise UserError(f"mode {mode!r} is unknown: {did_you_mean(mode, MODES)}")
        if modes.count(mode) > 1:
            raise UserError(f"mode {mode!r} stands there twice: leave one away; repeats repeats every mode.")
    return modes


def _above_zero(node: Node, kind: type) -> Any:
    value = read_setting(text(node), kind)
    if not value > 0:
        raise UserError(f"it is {value:g}: give {'a whole number from 1' if kind is int else 'seconds above zero'}.")
    return value

"""`run.json`: what a run is, who made it, and how it ended."""

from __future__ import annotations

import datetime
import json
import os
import platform
import time
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, TypedDict, get_args

import psutil

from labkit.errors import DataError, UserError
from labkit.json_data import Moment, check_shape, read_json
from labkit.runs.atomic import replace_text
from labkit.runs.private import shielded

SCHEMA_VERSION = 1
Kind = Literal["measured", "recorded", "emulated", "predicted"]
KINDS = get_args(Kind)
Status = Literal["running", "done", "failed", "stopped", "interrupted"]
SILENT_S = 60.0
"""A run on another host counts as interrupted when its folder has not changed for this long: while it runs, its
sampler writes a part every few seconds."""


@dataclass(frozen=True)
class Provenance:
    """Where a run's numbers come from; every figure repeats `kind`."""

    kind: Kind
    """"measured" here, "recorded" on another machine, "emulated" under a budget, or "predicted" by a model."""
    by: str
    """The program and version that wrote it."""
    when: str
    """ISO 8601 with offset."""
    note: str = ""

    @classmethod
    def now(cls, kind: Kind, note: str = "") -> Provenance:
        """Provenance of a run that labkit starts at this moment."""
        from labkit import __version__

        return cls(kind, f"labkit {__version__}", timestamp(), note)


BUSY = 0.1
"""Share of the cores from which other programs disturb a run: below it they are lost in its own noise."""
MOST_OF_A_CORE = 0.5
"""Cores from which they do on many cores, whose threads wait for the slowest of them"""

# What readers rely on of a record; more may be there, and is left alone.


class Others(TypedDict):
    cpu_share: float
    """0 to 1, of the CPU time of the run's cores: other programs and, where the machine is virtual, other machines"""
    largest: str | None
    """The program that took most, where it took a tenth of a core"""
    on_gpu: list[str]
    """Other processes that had the run's GPU open to compute, at its beginning or its end"""
    disturbed: bool
    """Whether others took a tenth of the cores or half a core, or had the GPU open"""


class Train(TypedDict, total=False):
    target_metric: str | None
    target: float | None
    higher_is_better: bool | None


class Shared(TypedDict):
    group: str
    mode: str
    jobs: str


class Swept(TypedDict):
    name: str
    cell: str
    settings: dict[str, Any]


class Config(TypedDict, total=False):
    job: str
    data: dict[str, Any]
    train: Train
    collocation: Shared
    sweep: Swept


class UsedBudget(TypedDict, total=False):
    name: str
    torch_name: str


class UsedDevice(TypedDict, total=False):
    name: str
    torch_name: str | None
    uuid: str | None
    mig_parent_uuid: str | None
    cores: float | None
    memory_bytes: float | None


class Result(TypedDict, total=False):
    reason: str | None
    target_reached: bool | None
    time_to_target_s: float | None
    samples_to_target: float | None
    samples_per_s: float | None
    samples: float | None
    steps: float | None
    wall_s: float | None
    train_s: float | None
    peak_memory_bytes: float | None
    peak_gpu_memory_bytes: float | None
    energy_j: float | None
    energy_note: str | None
    others: Others | None


@dataclass
class RunRecord:
    """The content of `run.json`."""

    id: str
    """Folder name: UTC time, name, four random digits; sorts by time."""
    name: str
    config: Config
    budget: UsedBudget
    tier: str | None
    """Catalogue entry that prices the run."""
    devices: list[UsedDevice]
    host: str
    software: dict[str, Any]
    git_commit: str | None
    """Commit of labkit's checkout; None outside one."""
    seed: int | None
    """What the script was given; None where it was given none, and drew its own numbers."""
    argv: list[str]
    provenance: Provenance
    status: Status
    pid: int
    """Process that writes the run."""
    pid_started: float
    """When that process began (seconds since 1970), since a pid is used again."""
    started_at: Moment
    ended_at: Moment | None = None
    result: Result | None = None
    schema_version: int = SCHEMA_VERSION

    @property
    def profiled(self) -> bool:
        """Whether a profiler looked at its steps: its times are no benchmark, and it had no target to reach."""
        return "profile" in self.config

    @property
    def is_trial(self) -> bool:
        """Whether it is a trial of `labkit energy trial`, which was stopped early and had no target to reach."""
        return "trial" in self.config

    @property
    def told_seed(self) -> int | str:
        """The seed as tables show it: "none" where the script was given none."""
        return "none" if self.seed is None else self.seed

    @property
    def shared(self) -> dict[str, Any] | None:
        """What it shared its device with (group, mode, jobs, mix); None for a run that had it for itself."""
        told = self.config.get("collocation")
        return told if told is not None and told["mode"] != "alone" else None

    @property
    def ran_under(self) -> str:
        """Its budget's name; of a run that shared its device, the mode and the jobs that shared it."""
        if self.shared is not None:
            return f"{self.shared['mode']}, {self.shared['jobs']}"
        return self.budget.get("name", "whole machine")

    def save(self, folder: Path) -> None:
        """Write `run.json` in one step, without home folders and secrets."""
        replace_text(folder / "run.json", json.dumps(shielded(asdict(self)), indent=1) + "\n")

    def is_being_written(self, folder: Path) -> bool:
        """Whether the process that writes this run still runs; on another host, whether its folder still changes."""
        if self.host == platform.node():
            return is_alive(self.pid, self.pid_started)
        return time.time() - _last_change(folder) < SILENT_S


class _Versioned(TypedDict):
    schema_version: int


def read_run(folder: Path | str) -> RunRecord:
    """Read a run folder's record; a run whose writer died shows as "interrupted".

    Raises:
        UserError: there is no record, it cannot be read, or a newer labkit wrote it.
    """
    path = Path(folder) / "run.json"
    fix = "Restore it from a copy (the metrics beside it may still be readable); move another program's folder away."
    try:
        content = read_json(path, _Versioned, fix=fix)
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(
            f"{folder}: this is no run folder, because it has no run.json. `labkit runs list` shows all."
        ) from None
    if (version := content["schema_version"]) > SCHEMA_VERSION:
        raise UserError(
            f"{path}: this run has format {version}, written by a newer labkit, and this one reads up to "
            f"{SCHEMA_VERSION}: upgrade labkit to open it."
        )
    values = {f.name: content[f.name] for f in fields(RunRecord) if f.name in content}
    try:
        check_shape(values, RunRecord)
        values["provenance"] = Provenance(**values["provenance"])
        record = RunRecord(**values)
    except (TypeError, ValueError) as error:
        raise DataError(f"this record is not what a run needs ({error}).", file=path, fix=fix) from error
    if record.status == "running" and not record.is_being_written(path.parent):
        record.status = "interrupted"
    return record


def _last_change(folder: Path) -> float:
    """Seconds since 1970 at which something in a run folder was last written."""
    places = [folder / name for name in ("run.json", "events.jsonl", "metrics", "telemetry")]
    return max(place.stat().st_mtime for place in places if place.exists())


def timestamp() -> str:
    """Now, ISO 8601 with the local offset, to the millisecond."""
    return datetime.datetime.now().astimezone().isoformat(timespec="milliseconds")


CLOCK_TOLERANCE_S = 2.0
"""Linux derives the time a process began from the boot time, which moves when the clock is set."""


def process_started(pid: int) -> float | None:
    """When a process began, in seconds since 1970; None where none of that number runs."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return round(process.create_time(), 1)
    except psutil.Error:
        return None


def is_alive(pid: int, started: float) -> bool:
    """Whether the process of that number that began then still runs; numbers are used again."""
    now = process_started(pid)
    return now is not None and abs(now - started) < CLOCK_TOLERANCE_S


def own_process() -> tuple[int, float]:
    """This process' pid and when it began."""
    return os.getpid(), process_started(os.getpid())


def in_words(others: Others | None) -> str:
    """What others took, as a part of a sentence; empty where they did not disturb the run."""
    if others is None or not others["disturbed"]:
        return ""
    words = []
    if others["cpu_share"] >= BUSY or not others["on_gpu"]:
        most = f", most of it {others['largest']}" if others["largest"] else ""
        words.append(f"other programs took {others['cpu_share']:.0%} of its cores{most}")
    if others["on_gpu"]:
        words.append(f"{', '.join(others['on_gpu'])} had its GPU open, too")
    return " and ".join(words)


def worse(one: Others | None, other: Others | None) -> Others | None:
    """What disturbed a run more, of what two of its processes recorded."""
    return max((one, other), key=lambda told: (told is not None, told and (told["disturbed"], told["cpu_share"])))

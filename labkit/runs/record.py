"""`run.json`: what a run is, who made it, and how it ended."""

import datetime
import json
import os
import platform
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal, TypedDict

from labkit import DataError, UserError, json_data, project
from labkit.runs.safe_files import replace_text, shielded

SCHEMA_VERSION = 1
Kind = Literal["measured", "recorded", "emulated", "predicted"]
Status = Literal["running", "done", "failed", "stopped", "interrupted"]
SILENT_S = 60.0
"""Seconds without a change in its folder after which a run on another host counts as interrupted: the sampler of a
live run writes a part every few seconds."""


@dataclass(frozen=True)
class Provenance:
    """Origin of a run's numbers; every figure repeats its `kind`."""

    kind: Kind
    """"measured" here, "recorded" on another machine, "emulated" under a budget, or "predicted" by a model."""
    by: str
    """Program and version that wrote it."""
    when: str
    """ISO 8601 with offset."""
    note: str = ""

    @classmethod
    def now(cls, kind: Kind, note: str = "") -> "Provenance":
        """Provenance of a run that labkit starts now."""
        return cls(kind, f"labkit {project.VERSION}", timestamp(), note)


BUSY = 0.1
"""Share of a run's cores above which other programs disturb it; less is lost in the run's own noise."""
MOST_OF_A_CORE = 0.5
"""Number of cores above which they disturb a run on many cores, because its threads wait for the slowest one."""

# The fields that readers rely on. A record may have more, which readers ignore.


class Others(TypedDict):
    """What other programs took from a run."""

    cpu_share: float
    """Share (0 to 1) of the CPU time of the run's cores taken by other programs and other virtual machines."""
    largest: str | None
    """Program that took most, if it took at least a tenth of a core."""
    on_gpu: list[str]
    """Other processes that had the run's GPU open for computing, at its beginning or end."""
    disturbed: bool
    """Whether they took a tenth of the cores or half a core, or had the GPU open."""


class Train(TypedDict, total=False):
    target_metric: str | None
    target: float | None
    higher_is_better: bool | None
    on_bad_row: Any  # Any: a user's script may have a setting of this name
    features: Any


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
    script_sha256: str
    data: dict[str, Any]
    train: Train
    collocation: Shared
    sweep: Swept
    model: Any  # Any: a user's script may have a setting of this name
    profile: Any
    pipeline: Any
    ranks: int


class UsedBudget(TypedDict, total=False):
    name: str
    torch_name: str
    cores: float | None


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
    ranks: list[dict[str, Any]]
    metrics: Any  # Any: records of older versions are not checked for it


@dataclass
class RunRecord:
    """The content of `run.json`."""

    id: str
    """Name of the folder: UTC time, name, four random digits; sorts by time."""
    name: str
    config: Config
    budget: UsedBudget
    tier: str | None
    """Catalogue tier that prices the run."""
    devices: list[UsedDevice]
    host: str
    software: dict[str, Any]
    git_commit: str | None
    """Commit of labkit's checkout; None outside a checkout."""
    seed: int | None
    """Seed that the script was given; None if it was given none and drew its own numbers."""
    argv: list[str]
    provenance: Provenance
    status: Status
    pid: int
    """Process that writes the run."""
    pid_started: float
    """Start of that process, in seconds since 1970, because pids are reused."""
    started_at: json_data.Moment
    ended_at: json_data.Moment | None = None
    result: Result | None = None
    schema_version: int = SCHEMA_VERSION

    @property
    def profiled(self) -> bool:
        """Whether it was profiled: its times are not a benchmark, and it had no target."""
        return "profile" in self.config

    @property
    def is_trial(self) -> bool:
        """Whether it is a trial of `labkit energy trial`, which was stopped early and had no target."""
        return "trial" in self.config

    @property
    def told_seed(self) -> int | str:
        """The seed for tables: "none" if the script was given none."""
        return "none" if self.seed is None else self.seed

    @property
    def shared(self) -> Shared | None:
        """How it shared its device (group, mode, jobs, mix); None if it had the device to itself."""
        shared = self.config.get("collocation")
        return shared if shared is not None and shared["mode"] != "alone" else None

    @property
    def ran_under(self) -> str:
        """The name of its budget; if it shared its device, the mode and the jobs instead."""
        if self.shared is not None:
            return f"{self.shared['mode']}, {self.shared['jobs']}"
        name = self.budget.get("name", "whole machine")
        return f"{name}, {self.config['ranks']} processes" if self.config.get("ranks", 1) > 1 else name

    def save(self, folder: Path) -> None:
        """Write `run.json` in one step, without home folders and secrets."""
        replace_text(folder / "run.json", json.dumps(shielded(asdict(self)), indent=1) + "\n")

    def is_being_written(self, folder: Path) -> bool:
        """Whether the process that writes this run is alive; on another host, whether its folder still changes."""
        if self.host == platform.node():
            return is_alive(self.pid, self.pid_started)
        places = [folder / name for name in ("run.json", "events.jsonl", "metrics", "telemetry")]
        return time.time() - max(place.stat().st_mtime for place in places if place.exists()) < SILENT_S


class _Versioned(TypedDict):
    schema_version: int


def read_run(folder: Path | str) -> RunRecord:
    """Read the record of a run folder; a run whose writer died has the status "interrupted".

    Raises:
        UserError: there is no record, it cannot be read, or a newer labkit wrote it.
    """
    path = Path(folder) / "run.json"
    fix = "Restore it from a copy (its metrics may still be readable), or move the folder if it is not labkit's."
    try:
        content = json_data.read_json(path, _Versioned, fix=fix)
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(
            f"{folder} is not a run folder, because it has no run.json: choose one that `labkit runs list` shows."
        ) from None
    if (version := content["schema_version"]) > SCHEMA_VERSION:
        raise UserError(
            f"{path}: a newer labkit wrote this run, in format {version}, and this one reads formats up to "
            f"{SCHEMA_VERSION}: upgrade labkit to open it."
        )
    values = {f.name: content[f.name] for f in fields(RunRecord) if f.name in content}
    try:
        json_data.check_shape(values, RunRecord)
        values["provenance"] = Provenance(**values["provenance"])
        record = RunRecord(**values)
    except (TypeError, ValueError) as error:
        raise DataError(f"this is not the record of a run ({error}).", file=path, fix=fix) from error
    if record.status == "running" and not record.is_being_written(path.parent):
        record.status = "interrupted"
    return record


def timestamp() -> str:
    """Now, ISO 8601 with the local offset, to the millisecond."""
    return datetime.datetime.now().astimezone().isoformat(timespec="milliseconds")


def moment_ns(text: str) -> int:
    """A date and time in nanoseconds since 1970, to the microsecond."""
    return round(datetime.datetime.fromisoformat(text).timestamp() * 1e6) * 1000


CLOCK_TOLERANCE_S = 2.0
"""Linux derives the start of a process from the boot time, which moves when the clock is set."""


def is_alive(pid: int, started: float) -> bool:
    """Whether the process with that pid and start is alive; a pid alone may be reused."""
    import psutil  # which the readers of ended runs need not load

    try:
        process = psutil.Process(pid)
        return process.status() != psutil.STATUS_ZOMBIE and abs(process.create_time() - started) < CLOCK_TOLERANCE_S
    except psutil.Error:
        return False


def own_process() -> tuple[int, float]:
    """Pid and start of this process."""
    import psutil

    return os.getpid(), round(psutil.Process().create_time(), 1)


def disturbance_text(others: Others | None) -> str:
    """What other programs took, as part of a sentence; empty if they did not disturb the run."""
    if others is None or not others["disturbed"]:
        return ""
    parts = []
    if others["cpu_share"] >= BUSY or not others["on_gpu"]:
        most = f", most of it {others['largest']}" if others["largest"] else ""
        parts.append(f"other programs took {others['cpu_share']:.0%} of its cores{most}")
    if others["on_gpu"]:
        parts.append(f"{', '.join(others['on_gpu'])} also had its GPU open")
    return " and ".join(parts)


def unreached(status: str, result: Mapping[str, Any], max_seconds: float | None) -> str:
    """What a run counts as for a target that it did not reach, from its record: "failed" or "censored".

    A run has failed if it diverged, broke, ran out of patience, or came to the end of its epochs or of its script: it
    would never have reached the target. It is censored if something else cut it off: a stop, a kill, its time limit,
    its own target if a harder one is analysed; or if it still runs. Records of older versions lack `ended_by`.
    """
    if status == "failed":
        return "failed"
    if status != "done":
        return "censored"
    ended_by = result.get("ended_by")
    if ended_by is None and result.get("target_reached"):
        ended_by = "target"
    if ended_by is None and max_seconds is not None and (result.get("wall_s") or 0.0) >= max_seconds:
        ended_by = "max_seconds"
    return "censored" if ended_by in ("target", "max_seconds", "profiled") else "failed"


def worse(one: Others | None, other: Others | None) -> Others | None:
    """The larger of the disturbances that two processes of a run recorded."""
    return max((one, other), key=lambda each: (each is not None, each and (each["disturbed"], each["cpu_share"])))

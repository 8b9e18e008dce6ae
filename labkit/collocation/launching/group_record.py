"""`group.json`: what a plan came to, round by round and job by job, replaced in one step whenever that changes."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from labkit.collocation.launching.jobs_folder import new_jobs_folder
from labkit.collocation.plan.plan import Plan, Workload
from labkit.errors import UserError
from labkit.hardware.devices import get_devices
from labkit.hardware.software import package_versions
from labkit.runs import Provenance
from labkit.runs.atomic import replace_text
from labkit.runs.process import is_alive, own_process
from labkit.runs.record import timestamp

SCHEMA_VERSION = 2
"""Up to 1, a job had a kind and a request"""
ENDED = ("done", "failed", "stopped", "timed_out", "out_of_memory")


@dataclass
class JobOutcome:
    """One job in one round."""

    job: str
    label: str
    """What it trains: dlrm:tour, or a script's name"""
    status: str = "waiting"
    """waiting, running, or one of ENDED"""
    run: str | None = None
    """Its run folder's name, in the group's folder"""
    reason: str = ""
    wall_s: float | None = None
    """From the barrier to its end"""
    device: str = ""
    """What it had of the device, in words"""
    log: str = ""
    """File in the group's folder with what its script printed"""
    attempt: int = 1


@dataclass
class RoundRecord:
    """Jobs that ran together; in mode alone, one."""

    workload: str
    mode: str
    repeat: int
    """From 0"""
    jobs: list[JobOutcome]
    status: str = "waiting"
    """waiting, running, done (all of its jobs), failed or stopped"""
    go_at: str | None = None
    """When the barrier was lifted, ISO 8601"""
    ended_at: str | None = None
    left: list[int] = field(default_factory=list)
    """Processes that even SIGKILL did not end, because a driver keeps them"""


@dataclass
class GroupRecord:
    """The content of `group.json`."""

    id: str
    plan: Plan
    host: str
    devices: list[dict[str, Any]]
    software: dict[str, Any]
    provenance: Provenance
    status: str
    """running, done, failed, stopped, or interrupted"""
    pid: int
    pid_started: float
    started_at: str
    needs: dict[str, int] = field(default_factory=dict)
    """Bytes that each job was estimated to take, by WORKLOAD/JOB"""
    quiet: bool | None = None
    """Whether other programs left the CPU alone when it began; jobs alone wait busily then"""
    rounds: list[RoundRecord] = field(default_factory=list)
    ended_at: str | None = None
    schema_version: int = SCHEMA_VERSION

    def save(self, folder: Path) -> None:
        """Write `group.json` in one step."""
        content = asdict(self) | {"plan": self.plan.to_dict()}
        replace_text(folder / "group.json", json.dumps(content, indent=1) + "\n")


def new_group(
    runs_dir: Path, plan: Plan, needs: Mapping[str, int], quiet: bool | None = None
) -> tuple[Path, GroupRecord]:
    """Make the folder of a plan; its record, not yet saved, has all rounds waiting.

    Raises:
        UserError: no folder can be made there.
    """
    folder = new_jobs_folder(runs_dir, "group", plan.name)
    pid, pid_started = own_process()
    return folder, GroupRecord(
        id=folder.name,
        plan=plan,
        host=platform.node(),
        devices=[device.to_dict() for device in get_devices()],
        software=package_versions(),
        provenance=Provenance.now("measured"),
        status="running",
        pid=pid,
        pid_started=pid_started,
        started_at=timestamp(),
        needs=dict(needs),
        quiet=quiet,
        rounds=planned_rounds(plan),
    )


def planned_rounds(plan: Plan) -> list[RoundRecord]:
    """The rounds of a plan, repeat by repeat, so that what drifts meets all modes alike."""
    return [
        RoundRecord(workload.name, workload.mode, repeat, [JobOutcome(job.name, job.label) for job in jobs])
        for repeat in range(plan.repeats)
        for workload in plan.workloads
        for jobs in together(workload)
    ]


def together(workload: Workload) -> list[tuple]:
    """The jobs of each of its rounds."""
    return [(job,) for job in workload.jobs] if workload.mode == "alone" else [workload.jobs]


def read_group(folder: Path | str) -> GroupRecord:
    """Read a group's record; one whose launcher died shows as "interrupted".

    Raises:
        UserError: there is none, or it is damaged, or a newer labkit wrote it.
    """
    path = Path(folder) / "group.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["schema_version"] > SCHEMA_VERSION:
            raise UserError(f"{path}: a newer labkit wrote this group: upgrade labkit to open it.")
        if content["schema_version"] < SCHEMA_VERSION:
            raise UserError(f"{path}: an older labkit wrote this group, whose jobs were no scripts: run the plan anew.")
        rounds = [
            RoundRecord(**each | {"jobs": [JobOutcome(**job) for job in each["jobs"]]}) for each in content["rounds"]
        ]
        content |= {
            "plan": Plan.from_dict(content["plan"]),
            "provenance": Provenance(**content["provenance"]),
            "rounds": rounds,
        }
        record = GroupRecord(**content)
    except FileNotFoundError:
        raise UserError(
            f"{folder}: this is no group of collocated jobs, because it has no group.json. `labkit collocate --list` "
            "shows all."
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(
            f"{path}: this record is damaged ({error}). The run folders beside it may still be readable; restore "
            "group.json from a copy, or delete the folder."
        ) from error
    if record.status == "running" and not (record.host == platform.node() and is_alive(record.pid, record.pid_started)):
        record.status = "interrupted"
    return record


def group_folders(runs_dir: Path | str) -> list[Path]:
    """The groups below a folder, oldest first."""
    return sorted(path.parent for path in Path(runs_dir).glob("*/group.json"))


def find_group(group: str, runs_dir: Path | str) -> Path:
    """The folder of a group named by its folder, its id, or the beginning of its id.

    Raises:
        UserError: no group, or more than one, goes by that name.
    """
    if (Path(group) / "group.json").is_file():
        return Path(group)
    matches = [folder for folder in group_folders(runs_dir) if folder.name.startswith(group)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise UserError(f"group {group!r} could be {', '.join(f.name for f in matches[:5])}: write more of its name.")
    raise UserError(f"there is no group {group!r} in {runs_dir}. `labkit collocate --list` shows all.")

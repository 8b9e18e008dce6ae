"""What a group and a queue came to: a folder with their jobs' runs and logs, and a record of it in JSON."""

from __future__ import annotations

import contextlib
import datetime
import json
import platform
import secrets
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

from labkit.errors import DataError, UserError
from labkit.json_data import Moment, build, check_shape, read_json
from labkit.runs import Provenance, is_alive, own_process, replace_text, restored, shielded, timestamp
from labkit.sharing.plan.plan import Plan

SCHEMA_VERSION = 2
"""Up to 1, a job had a kind and a request"""
ENDED = ("done", "failed", "stopped", "timed_out", "out_of_memory")


@dataclass(kw_only=True)
class JobsRecord:
    """The content of `group.json` or `queue.json`, replaced in one step whenever it changes."""

    KIND: ClassVar[str]
    """group or queue"""

    id: str
    host: str = field(default_factory=platform.node)
    provenance: Provenance = field(default_factory=lambda: Provenance.now("measured"))
    status: str = "running"
    """running, done, failed (some job), stopped, or interrupted"""
    pid: int = field(default_factory=lambda: own_process()[0])
    pid_started: float = field(default_factory=lambda: own_process()[1])
    started_at: Moment = field(default_factory=timestamp)
    ended_at: Moment | None = None
    schema_version: int = SCHEMA_VERSION

    @classmethod
    def file(cls, folder: Path | str) -> Path:
        """Where it is kept."""
        return Path(folder) / f"{cls.KIND}.json"

    @classmethod
    def new(cls, runs_dir: Path | str, name: str, **content: Any) -> tuple[Path, Self]:
        """Make a folder whose name sorts by time (UTC), with a folder for logs in it; its record is not yet saved.

        Raises:
            UserError: no folder can be made there.
        """
        now = datetime.datetime.now(datetime.UTC).strftime("%Y%m%d-%H%M%S")
        safe = "".join(char if char.isalnum() else "-" for char in name)[:40]
        folder = Path(runs_dir) / f"{now}-{cls.KIND}-{safe}-{secrets.token_hex(2)}"
        try:
            (folder / "logs").mkdir(parents=True)
        except OSError as error:
            raise UserError(
                f"{runs_dir}: no folder can be made there ({error.strerror}): choose another --runs-dir."
            ) from error
        return folder, cls(id=folder.name, **content)

    def save(self, folder: Path) -> None:
        """Write it in one step, without home folders and secrets."""
        replace_text(self.file(folder), json.dumps(shielded(asdict(self)), indent=1) + "\n")

    @contextlib.contextmanager
    def kept(self, folder: Path) -> Iterator[None]:
        """Say that its jobs run, and at the end of the block, however that comes, that they have ended."""
        self.status, self.ended_at = "running", None
        self.pid, self.pid_started = own_process()
        try:
            yield
        except BaseException:
            self.status = "stopped"
            raise
        finally:
            self.ended_at = timestamp()
            self.save(folder)

    @classmethod
    def read(cls, folder: Path | str) -> Self:
        """Read a record; one whose process died shows as "interrupted".

        Raises:
            UserError: there is none, or it is damaged, or another version of labkit wrote it.
        """
        path = cls.file(folder)
        fix = f"The run folders beside it may still be readable; restore {path.name} from a copy, or delete the folder."
        try:
            content = restored(read_json(path, dict[str, Any], fix=fix))
        except (FileNotFoundError, NotADirectoryError):
            raise UserError(f"{folder}: this is no {cls.KIND} of labkit's, because it has no {path.name}.") from None
        if content.get("schema_version") != SCHEMA_VERSION:
            raise UserError(f"{path}: another version of labkit wrote this {cls.KIND}: open it there, or run it anew.")
        try:
            check_shape(content, cls)
            record = build(content, cls)
        except (ValueError, TypeError) as error:
            raise DataError(f"this record is damaged ({error}).", file=path, fix=fix) from error
        here = record.host == platform.node()
        if record.status == "running" and not (here and is_alive(record.pid, record.pid_started)):
            record.status = "interrupted"
        return record

    @classmethod
    def folders(cls, runs_dir: Path | str) -> list[Path]:
        """All below a folder, oldest first."""
        return sorted(path.parent for path in Path(runs_dir).glob(f"*/{cls.KIND}.json"))

    @classmethod
    def find(cls, name: str, runs_dir: Path | str) -> Path:
        """The folder of that path, id, or beginning of an id; a UserError where there is none, or more than one."""
        if cls.file(name).is_file():
            return Path(name)
        folders = cls.folders(runs_dir)
        if not folders:
            raise UserError(f"{cls.KIND} {name!r}: {runs_dir} holds no {cls.KIND}: name another folder.")
        matches = [folder for folder in folders if folder.name.startswith(name)]
        if len(matches) == 1:
            return matches[0]
        what = "could be " + ", ".join(f.name for f in matches[:5]) if matches else f"is none of those in {runs_dir}"
        there = ", ".join(folder.name for folder in folders[-5:])
        raise UserError(f"{cls.KIND} {name!r} {what}: write (more of) the name of one; the latest are {there}.")


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
    go_at: Moment | None = None
    """When the barrier was lifted"""
    ended_at: Moment | None = None
    left: list[int] = field(default_factory=list)
    """Processes that even SIGKILL did not end, because a driver keeps them"""


@dataclass(kw_only=True)
class GroupRecord(JobsRecord):
    """The content of `group.json`."""

    KIND: ClassVar[str] = "group"

    plan: Plan
    needs: dict[str, int] = field(default_factory=dict)
    """Bytes that each job was estimated to take, by WORKLOAD/JOB"""
    quiet: bool | None = None
    """Whether other programs left the CPU alone when it began; jobs alone wait busily then"""
    rounds: list[RoundRecord] = field(default_factory=list)


def planned_rounds(plan: Plan) -> list[RoundRecord]:
    """The rounds of a plan, repeat by repeat, so that what drifts meets all modes alike."""
    return [
        RoundRecord(workload.name, workload.mode, repeat, [JobOutcome(job.name, job.label) for job in jobs])
        for repeat in range(plan.repeats)
        for workload in plan.workloads
        for jobs in ([(job,) for job in workload.jobs] if workload.mode == "alone" else [workload.jobs])
    ]

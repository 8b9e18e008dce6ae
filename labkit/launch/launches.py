"""Lists of launches, and the file that keeps what became of each."""

import contextlib
import datetime
import json
import os
import platform
import secrets
import time
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import filelock

from labkit import DataError, UserError, errors, json_data, runs, tracking

FILE = "launches.jsonl"
LOCK = ".lock"
SCHEMA_VERSION = 3
"""1 and 2 were group.json, queue.json and a file for each cell of a sweep"""
ENDED = ("done", "failed", "stopped", "timed_out", "out_of_memory")
OLD = {"mix": "group.json", "queue": "queue.json"}
"""Files of lists that earlier versions wrote, by kind"""
BESIDE = {"mix": 0, "queue": 0, "sweep": 2}
"""Levels from the folder of a list up to the folder of its runs, by kind; 1 for other kinds"""


@dataclass(frozen=True)
class Launch:
    """One run that is wanted. It crosses processes as JSON."""

    name: str
    """Unique in its list; names its log"""
    job: "tracking.ScriptCommand"
    """What its process runs, with its budget; `{seed}` may still stand in its arguments"""
    label: str = ""
    """What it trains, for people: dlrm:tour, or a script's name"""
    mode: str = "alone"
    """How it shares the device with what runs at the same time"""
    together: str = ""
    """Name of the round in which it starts: all launches of a round take their first step at one barrier"""
    limit_s: float | None = None
    """Seconds from its start after which it is asked to end"""
    about: dict[str, Any] = field(default_factory=dict)
    """What its maker wants to know of it later, JSON-able"""


@dataclass(kw_only=True)
class Outcome:
    """What became of one launch; of several attempts, the last."""

    status: str = "waiting"
    """waiting, running, left_out, or one of ENDED"""
    attempts: int = 0
    """Starts, without those that ended with the launcher itself"""
    broken_off: int = 0
    """Starts that ended with the launcher itself"""
    run: str | None = None
    """Name of its run folder"""
    reason: str = ""
    """Why it ended as it did"""
    device: str = ""
    """What it had of the device, for people"""
    log: str = ""
    """File in the list's folder with what its script printed"""
    go_at: json_data.Moment | None = None
    """When its barrier was lifted"""
    wall_s: float | None = None
    """Seconds from the barrier to its end"""
    seconds: float | None = None
    """Seconds from the start of its process to its end; None where the launcher was killed before it knew"""
    out_of_time: bool = False
    """Whether it was asked to end because its time was over"""
    forgiven: int = 0
    """Failed runs that do not count, because it was to be tried again"""
    more: dict[str, Any] = field(default_factory=dict)
    """What its maker keeps"""


@dataclass(kw_only=True)
class Part(Outcome):
    """One launch of a list, and what became of it."""

    launch: Launch

    @property
    def name(self) -> str:
        return self.launch.name

    @property
    def has_ended(self) -> bool:
        return self.status in ENDED or self.status == "left_out"

    def wait_again(self) -> None:
        """Forget the last attempt, so that it starts again."""
        self.status, self.run, self.reason, self.out_of_time = "waiting", None, "", False
        self.go_at = self.wall_s = self.seconds = None


STATE = tuple(each.name for each in fields(Outcome))


@dataclass(kw_only=True)
class Head:
    """What a list is, and whether it runs."""

    kind: str
    """sweep, seeds, tour, mix, queue, trials or probes"""
    id: str
    content: dict[str, Any] = field(default_factory=dict)
    """What its maker needs to read it again"""
    count: int = 0
    """Launches that the file has once it is whole"""
    host: str = field(default_factory=platform.node)
    provenance: "runs.Provenance" = field(default_factory=lambda: runs.Provenance.now("measured"))
    status: str = "running"
    """running, done, failed (some launch), stopped, or interrupted"""
    pid: int = field(default_factory=lambda: runs.own_process()[0])
    pid_started: float = field(default_factory=lambda: runs.own_process()[1])
    mark: str = ""
    """Mark in the environment of all processes that its executor started"""
    started_at: json_data.Moment = field(default_factory=runs.timestamp)
    ended_at: json_data.Moment | None = None
    schema_version: int = SCHEMA_VERSION


class Launches:
    """A list of launches in a folder, with what became of each.

    The file has a line for each fact, and the last line about a launch counts: a change costs one short line however
    long the list is, and after `kill -9` everything but a line that was half written is there.
    """

    def __init__(self, folder: Path, head: Head, launches: Iterable[Launch] = (), *, file: str = FILE):
        self.folder, self.head, self._is_locked = Path(folder), head, False
        self.file = self.folder / file
        self.parts: dict[str, Part] = {}
        """By name, in the order in which they start"""
        for launch in launches:
            assert launch.name not in self.parts, f"two launches are called {launch.name}"
            self.parts[launch.name] = Part(launch=launch)

    @classmethod
    def new(cls, runs_dir: Path | str, kind: str, name: str, launches: Iterable[Launch], **content: Any) -> "Launches":
        """Make a list in a folder whose name sorts by time (UTC).

        Raises:
            UserError: the system refuses to make a folder there.
        """
        now = datetime.datetime.now(datetime.UTC).strftime("%Y%m%d-%H%M%S")
        safe = "".join(char if char.isalnum() else "-" for char in name)[:40]
        folder = Path(runs_dir) / f"{now}-{kind}-{safe}-{secrets.token_hex(2)}"
        with errors.refusals():
            (folder / "logs").mkdir(parents=True)
        return cls(folder, Head(kind=kind, id=folder.name, content=content), launches)

    @property
    def runs_dir(self) -> Path:
        """Where the folders of its runs are."""
        levels = BESIDE.get(self.head.kind, 1)
        folder = self.folder if len(self.folder.parents) >= levels else self.folder.absolute()
        return folder.parents[levels - 1] if levels else folder

    def record_of(self, part: Part) -> "runs.RunRecord | None":
        """The record of the run of a launch; None where there is none that can be read."""
        with contextlib.suppress(UserError, OSError):
            return None if part.run is None else runs.read_run(self.runs_dir / part.run)
        return None

    def rounds(self) -> list[list[Part]]:
        """The launches that start together, in order."""
        found: dict[str, list[Part]] = {}
        for part in self.parts.values():
            found.setdefault(part.launch.together or part.name, []).append(part)
        return list(found.values())

    def write(self) -> None:
        """Write the whole file, without home folders and secrets: in one step where it replaces another."""
        self.head.count = len(self.parts)
        lines = [_line("head", self.head)]
        for part in self.parts.values():
            lines += [_line("launch", part.launch), _line("state", part)]
        if self.file.exists() or self.file.parent != self.folder:
            runs.replace_text(self.file, "".join(lines))
        else:  # without a second file, which a kill would leave behind; `count` shows whether it is whole
            with runs.disk_full_as_user_error(self.folder):
                self.file.write_text("".join(lines), encoding="utf-8")

    def save(self, *parts: Part) -> None:
        """Append what became of launches."""
        self._append([_line("state", part) for part in parts])

    def save_head(self) -> None:
        self._append([_line("head", self.head)])

    def _append(self, lines: list[str]) -> None:
        size = self.file.stat().st_size
        with runs.disk_full_as_user_error(self.folder), self.file.open("a", encoding="utf-8") as file:
            try:
                file.write("".join(lines))
                file.flush()
            except OSError:
                # the half of a line would spoil the one that follows it
                os.truncate(self.file, size)
                raise

    @contextlib.contextmanager
    def locked(self, wait_s: float = 0.0) -> Generator[None]:
        """Keep other processes from running the same list, for as long as the block lasts and this process lives.

        Raises:
            UserError: another process runs it, and still does after `wait_s` seconds.
        """
        if self._is_locked:
            yield
            return
        self.file.parent.mkdir(parents=True, exist_ok=True)
        path = self.folder / LOCK if self.file.name == FILE else self.file.with_suffix(LOCK)
        # where the file system has no locks, a file that outlives its holder would be no lock either
        lock = filelock.FileLock(path, fallback_to_soft=False)
        try:
            lock.acquire(timeout=wait_s)
        except filelock.Timeout:
            what, holder = self.folder if self.file.name == FILE else self.file.with_suffix(""), path.read_text()
            raise UserError(
                f"{what}: process {holder or 'of another user'} runs this: wait for it, end it, or choose another "
                "--runs-dir or name."
            ) from None
        except (NotImplementedError, OSError) as error:
            if errors.refused_number(error) is not None:
                raise
            raise UserError(f"{path}: this file system has no locks ({error}): choose another --runs-dir.") from error
        self._is_locked = True
        try:
            path.write_text(f"{os.getpid()} on {platform.node()}")
            for left_over in self.file.parent.glob(f".{self.file.name}.*"):  # of a process that was killed
                left_over.unlink(missing_ok=True)
            yield
        finally:
            self._is_locked = False
            lock.release()

    @contextlib.contextmanager
    def running(self) -> Generator[None]:
        """Say that it runs, and at the end of the block, however that comes, that it does not."""
        self.head.status, self.head.ended_at = "running", None
        self.head.pid, self.head.pid_started = runs.own_process()
        self.write()
        try:
            yield
        except BaseException:
            self.head.status = "stopped"
            raise
        finally:
            self.head.ended_at = runs.timestamp()
            self.save_head()

    @classmethod
    def read(cls, folder: Path | str, kind: str | None = None, *, file: str = FILE) -> "Launches":
        """Read a list; one whose process died, or of another host that is silent, shows as "interrupted".

        Raises:
            UserError: there is none, or it is damaged, or another version of labkit wrote it.
        """
        path = Path(folder) / file
        fix = "Restore it from a copy, or delete it: the run folders stay readable."
        try:
            *lines, _ = path.read_bytes().split(b"\n")  # what follows the last line end is not yet whole
        except (FileNotFoundError, NotADirectoryError):
            raise UserError(f"{folder}: labkit started nothing here, because it has no {path.name}.") from None
        found, number = None, 0
        try:
            for number, line in enumerate(lines, 1):
                content = runs.restored(json_data.parse_json(line))
                ((name, values),) = content.items()
                if number == 1 or found is None:
                    if content["head"].get("schema_version") != SCHEMA_VERSION:
                        why = "another version of labkit wrote this: open it there, or run it again."
                        raise UserError(f"{path}: {why}")
                    found = cls(Path(folder), json_data.from_json(Head, values), file=file)
                elif name == "head":
                    found.head = json_data.from_json(Head, values)
                elif name == "launch":
                    launch = json_data.from_json(Launch, values)
                    found.parts[launch.name] = Part(launch=launch)
                else:
                    part = found.parts[values.pop("launch")]
                    json_data.check_shape(values, Outcome)
                    vars(part).update({each: values[each] for each in STATE if each in values})
            if found is None or len(found.parts) < found.head.count:
                raise UserError(f"{folder}: nothing was started here before its launcher was killed: start it again.")
            head = found.head
        except UserError:
            raise
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise DataError(f"this record is damaged ({error}).", file=path, line=number, fix=fix) from error
        if kind is not None and head.kind != kind:
            raise UserError(f"{folder}: this is a {head.kind}, not a {kind}.")
        if head.status == "running" and not found._is_alive():
            head.status = "interrupted"
        return found

    def _is_alive(self) -> bool:
        """Whether its process lives; on another host, whether its file or the folder of a run under way changes."""
        if self.head.host == platform.node():
            return runs.is_alive(self.head.pid, self.head.pid_started)
        under_way = [self.record_of(part) for part in self.parts.values() if part.status == "running"]
        is_new = time.time() - self.file.stat().st_mtime < runs.SILENT_S
        return is_new or any(record and record.status == "running" for record in under_way)

    @classmethod
    def folders(cls, runs_dir: Path | str, kind: str) -> list[Path]:
        """The folders of all lists of a kind, oldest first; those of earlier versions, too."""
        names = [f"????????-??????-{kind}-*/{FILE}", *(f"*/{OLD[each]}" for each in OLD if each == kind)]
        return sorted(path.parent for name in names for path in Path(runs_dir).glob(name))

    @classmethod
    def find(cls, name: str, runs_dir: Path | str, kind: str) -> Path:
        """The folder of that path, id, or beginning of an id; a UserError where there is none, or more than one."""
        if any((Path(name) / file).is_file() for file in (FILE, OLD.get(kind, FILE))):
            return Path(name)
        folders = cls.folders(runs_dir, kind)
        if not folders:
            raise UserError(f"{kind} {name!r}: {runs_dir} holds no {kind}: name another folder.")
        matches = [folder for folder in folders if folder.name.startswith(name)]
        if len(matches) == 1:
            return matches[0]
        what = "could be " + ", ".join(f.name for f in matches[:5]) if matches else f"is none of those in {runs_dir}"
        there = ", ".join(folder.name for folder in folders[-5:])
        raise UserError(f"{kind} {name!r} {what}: write (more of) the name of one; the latest are {there}.")


def _line(kind: str, value: Head | Launch | Part) -> str:
    if isinstance(value, Part):
        content = {"launch": value.name} | {name: getattr(value, name) for name in STATE}
    else:
        content = json_data.to_json(value)
    return json.dumps({kind: runs.shielded(content)}) + "\n"

"""Writes one run folder, so that everything finished stays readable after a crash at any moment."""

import contextlib
import datetime
import errno
import json
import math
import platform
import secrets
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, TextIO

import filelock

from labkit import UserError
from labkit.runs.record import Config, RunRecord, Status, own_process, read_run, timestamp
from labkit.runs.safe_files import disk_full_as_user_error, shielded

STOP, STOP_POLL_S = "stop-requested", 0.25
"""File in the folder of a run that was asked to stop; seconds between two checks for it."""


def request_stop(folder: Path | str) -> None:
    """Ask the run in `folder` to end after its current step, with everything saved.

    Raises:
        UserError: it is not running.
    """
    status = read_run(folder).status
    if status != "running":
        raise UserError(
            f"{folder}: this run is not running, but {status}: choose one that `labkit runs list` shows as running."
        )
    (Path(folder) / STOP).touch()


class RunWriter:
    """Writes a run folder, as the only process; it holds the folder's lock until `finish`."""

    def __init__(self, folder: Path, record: RunRecord, lock: filelock.BaseFileLock):
        from labkit.runs.parts import METRICS, PartWriter  # Arrow, which readers of records do not need

        self.folder, self.record, self._lock = folder, record, lock
        self._stop_looked_at, self._stop_found = 0.0, False
        self._metrics = PartWriter(folder / "metrics", METRICS)
        self._events = _open_lines(folder / "events.jsonl")
        self._event_lock = threading.Lock()  # the thread that watches the sampler writes faults

    @property
    def run_id(self) -> str:
        return self.record.id

    @classmethod
    def create(cls, runs_dir: Path, name: str, **described: Any) -> Self:
        """Make a new run folder below `runs_dir`, with status "running"; `described` are other fields of `RunRecord`.

        Raises:
            UserError: the folder cannot be made there.
        """
        folder = _new_folder(runs_dir, name)
        lock = lock_run(folder)
        pid, pid_started = own_process()
        record = RunRecord(
            id=folder.name,
            name=name,
            host=platform.node(),
            git_commit=_git_commit(),
            argv=list(sys.argv),
            status="running",
            pid=pid,
            pid_started=pid_started,
            started_at=timestamp(),
            **described,
        )
        try:
            record.save(folder)
            writer = cls(folder, record, lock)
            writer.event("started")
        except BaseException:  # nothing is left of a run that could not begin
            lock.release()
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return writer

    @classmethod
    def reopen(
        cls, folder: Path, lock: filelock.BaseFileLock, *, from_step: int, config: Config, **machine: Any
    ) -> Self:
        """Continue a run after `from_step` steps; what it recorded beyond that step is superseded.

        Nothing is deleted: a "resumed" event says from which step on older rows no longer count. The old result stays
        until there is a new one. `lock` is that of `lock_run`, taken before `from_step` was read.
        """
        record = read_run(folder)
        host = platform.node()
        if host != record.host:
            note = f"{record.provenance.note}; continued on {host}, so its times mix two machines".removeprefix("; ")
            record.provenance = replace(record.provenance, note=note)
        record.status, record.ended_at, record.config = "running", None, config
        record.host, (record.pid, record.pid_started) = host, own_process()
        for left_overs in ("*/.*.pt.*", "*/.part-*", ".run.json.*", "ranks/*"):
            for path in folder.glob(left_overs):
                path.unlink(missing_ok=True)  # what a killed writer had not renamed into place
        (folder / STOP).unlink(missing_ok=True)  # it was meant for an earlier process of this run
        record.save(folder)
        writer = cls(folder, record, lock)
        where = machine | {"host": host, "argv": list(sys.argv), "pid": record.pid}
        writer.event("resumed", step=from_step, parts=writer._metrics.next_number, **where)
        return writer

    @property
    def stop_requested(self) -> bool:
        """Whether this run was asked to stop. It checks a few times per second, however often this is called."""
        now = time.monotonic()
        if not self._stop_found and now - self._stop_looked_at >= STOP_POLL_S:
            self._stop_looked_at, self._stop_found = now, (self.folder / STOP).exists()
        return self._stop_found

    def event(self, event: str, /, **values: Any) -> None:
        """Append one fact to `events.jsonl`, where it survives a crash of this process."""
        content = shielded({"event": event, "time": timestamp(), **values})
        line = json.dumps(without_nan(content), allow_nan=False)
        with disk_full_as_user_error(self.folder), self._event_lock:
            self._events.write(line + "\n")
            self._events.flush()

    def metric(self, *, step: int, wall_s: float, train_s: float, samples: int, name: str, value: float) -> None:
        """Record one number; it reaches the disk within seconds, or with `flush`."""
        row = {"step": step, "wall_s": wall_s, "train_s": train_s, "samples": samples, "name": name, "value": value}
        self._metrics.append(row)

    def flush(self) -> None:
        self._metrics.flush()

    def finish(self, status: Status, result: Any) -> None:
        """Write what is left and the final record, a `Result` that may have more keys, and close the writer."""
        self.record.status, self.record.result, self.record.ended_at = status, result, timestamp()
        with contextlib.ExitStack() as stack:  # from the last to the first, each even if another one fails
            stack.callback(self._lock.release)
            stack.callback(self.record.save, self.folder)
            stack.enter_context(disk_full_as_user_error(self.folder))
            stack.callback(self._events.close)
            stack.callback(self.flush)


def fail_killed(
    folder: Path | str, reason: str, *, even: Collection[Status] = ("interrupted",)
) -> dict[str, Any] | None:
    """Record the end of a run whose process was killed, and return it as an answer; None if the run has not died.

    `even` are the statuses that this replaces: a run of several ranks fails with one of them.
    """
    folder, record = Path(folder), read_run(folder)
    if record.status not in even:
        return None
    ended = {"event": "ended", "status": "failed", "reason": reason, "ended_by": "killed"}
    with _open_lines(folder / "events.jsonl") as events:
        for event in ({"event": "fault", "kind": "error", "what": reason}, ended):
            events.write(json.dumps(event | {"time": timestamp()}) + "\n")
    before = record.result if record.status == "failed" else None
    result: Any = {**(before or {}), "reason": reason, "ended_by": "killed"}
    record.status, record.result, record.ended_at = "failed", result, timestamp()
    record.save(folder)
    return {"run": record.id, "folder": str(folder), "status": record.status, "result": result}


def lock_run(folder: Path) -> filelock.BaseFileLock:
    """Take the lock of a run folder, which the system releases when this process ends for any reason.

    Raises:
        UserError: another process is writing this run.
    """
    # no soft lock: a marker file would outlive a killed process
    lock = filelock.FileLock(folder / ".lock", fallback_to_soft=False)
    busy = UserError(f"{folder}: another process is still writing this run: wait for it, or stop it first.")
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        raise busy from None
    except (NotImplementedError, OSError) as error:
        if isinstance(error, OSError) and error.errno not in (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP):
            raise
    # for file systems without locks; a folder that is just being made has no record yet
    if (folder / "run.json").exists() and read_run(folder).status == "running":
        raise busy
    return lock


def _open_lines(path: Path) -> TextIO:
    """Open a file of lines for appending; a line that a crash cut short is ended first."""
    torn = path.exists() and not path.read_bytes().endswith(b"\n") and path.stat().st_size > 0
    file = path.open("a", encoding="utf-8")
    if torn:
        file.write("\n")
    return file


def without_nan(value: Any) -> Any:
    """The value with None for NaN and infinity, which JSON does not have."""
    if isinstance(value, dict):
        return {name: without_nan(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _new_folder(runs_dir: Path, name: str) -> Path:
    now = datetime.datetime.now(datetime.UTC).strftime("%Y%m%d-%H%M%S")
    while (folder := Path(runs_dir) / f"{now}-{name}-{secrets.token_hex(2)}").exists():
        continue  # of 300 runs that start in one second, two have the same digits in one case of two
    try:
        with disk_full_as_user_error(Path(runs_dir).absolute().parent):
            folder.mkdir(parents=True)
    except OSError as error:
        raise UserError(
            f"{runs_dir}: a run folder cannot be made there ({error.strerror}): choose another folder (runs_dir, "
            "--runs-dir)."
        ) from None
    return folder


def _git_commit() -> str | None:
    """The commit of the checkout from which this package runs; None outside a checkout."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    try:
        answer = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, timeout=5)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() or None

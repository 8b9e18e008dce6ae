"""What became of each cell of a sweep: a small file a cell, which the records of the runs overrule."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import filelock

from labkit.errors import DataError, UserError
from labkit.json_data import build, read_json
from labkit.launch.grid import Sweep, described
from labkit.plan_files import did_you_mean
from labkit.process import GRACE_S, kill_session
from labkit.runs import RunRecord, is_alive, read_run, readable_runs, replace_text, run_folders, shielded

FOLDER = "sweeps"
"""Below --runs-dir: a folder a sweep, by its name"""
MOST_ATTEMPTS = 2
LOOK_S = 0.1
"""Between two looks at whether a process has ended"""
MOST_LEAD_S = 60.0
"""That a script prepares before its run begins"""

Found = dict[str, list[tuple[Path, RunRecord]]]
"""The runs of each cell of a sweep by its key, oldest first"""


@dataclass
class CellState:
    """The content of `RUNS_DIR/sweeps/NAME/KEY.json`."""

    key: str
    settings: dict[str, Any]
    seed: int | None
    repeat: int
    budget: str
    state: Literal["waiting", "running", "done", "failed"] = "waiting"
    attempts: int = 0
    """Begun, without those that ended with the sweep itself"""
    broken_off: int = 0
    """Attempts that ended with the sweep itself"""
    run: str | None = None
    """Name of the folder of the run that counts, or of the last that failed"""
    error: str | None = None
    """Why it failed"""
    seconds: float | None = None
    """That a finished cell took, from its process' start to its end; None where the sweep was killed before it knew"""
    out_of_time: bool = False
    """Whether its run was asked to end because its time was over: what it is by then is its result"""
    forgiven: int = 0
    """Runs that had failed before the cell was to be tried again"""
    pid: int | None = None
    """Process of the attempt under way"""
    pid_started: float = 0.0

    def save(self, folder: Path) -> None:
        """Write it in one step, without home folders and secrets."""
        replace_text(folder / f"{self.key}.json", json.dumps(shielded(asdict(self)), indent=1) + "\n")


def sweep_folder(runs_dir: Path, name: str) -> Path:
    """Where the states of a sweep's cells lie."""
    return Path(runs_dir) / FOLDER / name


def check_sweep(name: str, runs_dir: Path) -> None:
    """Raise a UserError where no sweep of that name has run."""
    if sweep_folder(runs_dir, name).is_dir():
        return
    known = sorted(path.name for path in (Path(runs_dir) / FOLDER).glob("*/"))
    hint = did_you_mean(name, known) if known else "none has run there: start one with `labkit sweep FILE`."
    raise UserError(f"there is no sweep {name!r} in {runs_dir}: {hint}")


def read_states(folder: Path) -> dict[str, CellState]:
    """The states of a sweep's folder by their keys."""
    fix = "Delete it: what has run is found by the records of the runs."
    states = {}
    for path in sorted(folder.glob("[!.]*.json")):
        try:
            state = build(read_json(path, CellState, fix=fix), CellState)
        except TypeError as error:  # a key that is none of its own
            raise DataError(f"this state is damaged ({error}).", file=path, fix=fix) from error
        states[state.key] = state
    return states


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes from running the same sweep in the same place; however this process ends, that ends, too.

    Raises:
        UserError: another process runs it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / ".lock"
    lock = filelock.FileLock(path, fallback_to_soft=False)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        holder = f"process {path.read_text() or 'of another user'}"
        raise UserError(
            f"{folder}: {holder} runs this sweep: wait for it, end it, or choose another --runs-dir or name."
        ) from None
    try:
        path.write_text(str(os.getpid()))
        yield
    finally:
        lock.release()


def find_runs(name: str, runs_dir: Path) -> tuple[Found, list[RunRecord]]:
    """The runs of a sweep below a folder, and the records of all others."""
    found, others = defaultdict(list), []
    for folder, record in readable_runs(run_folders(runs_dir)):
        swept = record.config.get("sweep", {})
        if swept.get("name") == name:
            found[swept["cell"]].append((folder, record))
        else:
            others.append(record)
    return found, others


def is_result(record: RunRecord, out_of_time: bool) -> bool:
    """Whether a run came to an end of its own, or to that of its time: what it is then is its cell's result."""
    if record.status == "failed":
        return (record.result or {}).get("ended_by") == "diverged"
    return record.status == "done" or (record.status == "stopped" and out_of_time)


def reconcile(state: CellState, runs: list[tuple[Path, RunRecord]]) -> None:
    """Let a state say what the records of its runs say; a run that was cut off with the sweep is to be repeated."""
    failed = [(folder, record) for folder, record in runs if record.status == "failed"][state.forgiven :]
    # an attempt that broke off without a word counts for nothing; nor does a result that somebody deleted
    begun = 0 if state.state == "done" else state.attempts - (state.state == "running")
    if ended := [(folder, record) for folder, record in runs if is_result(record, state.out_of_time)]:
        folder, _ = ended[-1]
        state.state, state.run, state.error = "done", folder.name, None
        state.attempts = max(state.attempts, 1)
    elif state.state != "failed":
        state.broken_off += state.state == "running"
        state.state, state.attempts = "waiting", begun
        if failed and len(failed) > begun:  # it was recorded, and the sweep ended before it knew
            folder, record = failed[-1]
            state.attempts, state.run, state.error = len(failed), folder.name, (record.result or {}).get("reason")
            state.state = "failed" if state.attempts >= MOST_ATTEMPTS else "waiting"
    if state.state != "done":
        state.out_of_time = False
    state.pid = None


def duration_s(record: RunRecord) -> float | None:
    """Seconds from the beginning of a run's process to its end; None of one that has not ended."""
    from datetime import datetime

    if record.ended_at is None:
        return None
    began = datetime.fromisoformat(record.started_at).timestamp()
    lead_s = began - record.pid_started  # a notebook's process may have been there for hours
    lead_s = lead_s if 0 < lead_s < MOST_LEAD_S else 0.0
    return datetime.fromisoformat(record.ended_at).timestamp() - began + lead_s


def end_orphan(pid: int, pid_started: float) -> None:
    """Wait for the process of a run whose sweep was killed, which thereby asked it to end; kill one that does not."""
    until = time.monotonic() + GRACE_S
    while is_alive(pid, pid_started) and time.monotonic() < until:
        time.sleep(LOOK_S)
    if is_alive(pid, pid_started):
        kill_session(pid)


def settled_states(
    sweep: Sweep, runs_dir: Path, *, retry_failed: bool = False
) -> tuple[dict[str, CellState], list[RunRecord]]:
    """The states of all cells of a sweep whose lock is held, and the records of other runs; none of it runs any more.

    Other cells of this sweep's name are among them: those that its file had once.
    """
    folder = sweep_folder(runs_dir, sweep.name)
    states = read_states(folder)
    for state in states.values():
        if state.pid is not None:
            end_orphan(state.pid, state.pid_started)
    found, others = find_runs(sweep.name, runs_dir)
    for key, runs in found.items():
        for number, (path, record) in enumerate(runs):
            if record.status == "running":
                end_orphan(record.pid, record.pid_started)
                found[key][number] = path, read_run(path)
    for cell in sweep.cells:
        before = asdict(states[cell.key]) if cell.key in states else None
        state = states.setdefault(cell.key, CellState(**described(cell)))
        reconcile(state, found.get(cell.key, []))
        if retry_failed and state.state == "failed":
            failed = [record for _, record in found.get(cell.key, []) if record.status == "failed"]
            state.state, state.attempts, state.forgiven = "waiting", 0, len(failed)
        if asdict(state) != before:
            state.save(folder)
    return states, others

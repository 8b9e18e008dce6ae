"""Runs the cells of a sweep one after another, whatever happens to one; goes on with a sweep that broke off."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from labkit.errors import UserError
from labkit.hardware import leased_cores
from labkit.launch.grid import Cell, Sweep, described
from labkit.launch.states import (
    MOST_ATTEMPTS,
    CellState,
    duration_s,
    find_runs,
    is_result,
    locked,
    read_states,
    reconcile,
    settled_states,
    sweep_folder,
)
from labkit.process import GRACE_S, kill_session
from labkit.runs import RunRecord, is_disk_full, process_started, read_run, restored
from labkit.tracking import LaunchedRun, WorkerFailed

USAGE_ERROR = 2
"""What argparse ends a script with whose arguments it does not know"""

OnSweepEvent = Callable[[Cell, CellState, dict[str, Any]], None]
"""Called with a cell, its state, and what happened to it: an event of `LaunchedRun.events`, or "State" when its state
changed"""


@dataclass
class Progress:
    """Where a sweep is."""

    sweep: Sweep
    states: Mapping[str, CellState]
    """By key; those of its name that are not in its file, too"""
    earlier_s: Sequence[float] = field(default=())
    """What other runs of the script took, in seconds"""

    def count(self, *states: str) -> int:
        """Cells in one of these states."""
        return sum(self.states[cell.key].state in states for cell in self.sweep.cells)

    @property
    def not_in_file(self) -> int:
        """Finished cells of this name that are not in the file any more."""
        keys = {cell.key for cell in self.sweep.cells}
        return sum(state.state == "done" and key not in keys for key, state in self.states.items())

    def time_left(self) -> tuple[float | None, str]:
        """Seconds that the cells to come will take, and by what: "cells", "runs", or "limit", which is the most.

        By the median of finished cells under the same budget, else that of earlier runs of the script, else the limit;
        (None, "") where one of them is not known.
        """
        known: dict[str, list[float]] = {}
        for state in self.states.values():
            if state.state == "done" and state.seconds is not None:
                known.setdefault(state.budget, []).append(state.seconds)
        total, by = 0.0, "cells"
        for cell in self.sweep.cells:
            if self.states[cell.key].state not in ("waiting", "running"):
                continue
            if cell.budget.name in known:
                total += median(known[cell.budget.name])
            elif self.earlier_s:
                total, by = total + median(self.earlier_s), "runs" if by == "cells" else by
            elif self.sweep.max_seconds is not None:
                total, by = total + self.sweep.max_seconds, "limit"
            else:
                return None, ""
        return total, by


def read_progress(sweep: Sweep, runs_dir: Path) -> Progress:
    """Where a sweep is; nothing is started, waited for or written."""
    states = read_states(sweep_folder(runs_dir, sweep.name))
    found, others = find_runs(sweep.name, runs_dir)
    for cell in sweep.cells:
        state = states.setdefault(cell.key, CellState(**described(cell)))
        reconcile(state, found.get(cell.key, []))
    return Progress(sweep, states, _earlier_s(sweep, others))


@contextlib.contextmanager
def opened(sweep: Sweep, runs_dir: Path, *, retry_failed: bool = False) -> Iterator[Progress]:
    """Hold a sweep for the block, in which `run_sweep` may run it; what an earlier process left of it has ended then.

    Raises:
        UserError: another process runs it, or the disk is full.
    """
    folder = sweep_folder(runs_dir, sweep.name)
    with locked(folder):
        for left_over in folder.glob(".*.json.*"):  # of a process that was killed while it wrote
            left_over.unlink()
        states, others = settled_states(sweep, runs_dir, retry_failed=retry_failed)
        yield Progress(sweep, states, _earlier_s(sweep, others))


def run_sweep(progress: Progress, runs_dir: Path, on_event: OnSweepEvent) -> None:
    """Run what waits of a sweep that is `opened`, in its order.

    A cell that crashed, was killed or ran out of memory is tried once more, then has failed. Those that were under way
    when the sweep broke off come last: one of them may have taken the machine with it. Ctrl-C stops the run under way
    politely, and its cell waits again.

    Raises:
        UserError: the disk is full, or a script does not know the arguments of the very first cell.
        KeyboardInterrupt: by Ctrl-C, once the run under way has ended.
    """
    for cell in sorted(progress.sweep.cells, key=lambda cell: progress.states[cell.key].broken_off):
        state = progress.states[cell.key]
        while state.state == "waiting":
            _Attempt(progress, cell, runs_dir, on_event).run()


class _Attempt:
    """One attempt at a cell."""

    def __init__(self, progress: Progress, cell: Cell, runs_dir: Path, on_event: OnSweepEvent):
        self._progress, self._sweep, self._cell, self._runs_dir = progress, progress.sweep, cell, runs_dir
        self._state, self._tell = progress.states[cell.key], on_event
        self._folder: Path | None = None
        """Of its run"""
        self._was_killed = False
        """Because it did not end after its time"""

    def run(self) -> None:
        """Run it, and settle what its cell is then."""
        budget = self._cell.budget

        def say(words: str) -> None:
            self._tell(self._cell, self._state, {"kind": "Notice", "text": words})

        # here and not in its own process, so that waiting for cores is none of its time
        with leased_cores(budget.cores, say=say) if budget.cores else contextlib.nullcontext():
            began = time.monotonic()
            with LaunchedRun(self._sweep.command(self._cell, self._runs_dir)) as launched:
                self._change("running", launched.pid)
                try:
                    why = self._followed(launched)
                except KeyboardInterrupt:
                    launched.stop()
                    self._follow(launched)
                    self._state.attempts -= 1
                    self._change("waiting")
                    raise
                finally:
                    failure = launched.failure
        self._settle(why, failure, time.monotonic() - began)

    def _followed(self, launched: LaunchedRun) -> BaseException | None:
        """The error that it ended with, if any."""
        if not self._sweep.limits_process:
            return self._follow(launched)
        limit_s = self._sweep.max_seconds
        timers = [
            threading.Timer(limit_s, self._end, [launched]),
            threading.Timer(limit_s + GRACE_S, self._kill, [launched]),
        ]
        for timer in timers:
            timer.daemon = True
            timer.start()
        try:
            return self._follow(launched)
        finally:
            for timer in timers:
                timer.cancel()
                timer.join()

    def _end(self, launched: LaunchedRun) -> None:
        # first, for should the sweep be killed now, the run ends as well, and nobody could tell why
        self._state.out_of_time = True
        try:
            self._state.save(self._states_folder)
        finally:
            launched.stop()

    def _kill(self, launched: LaunchedRun) -> None:
        self._was_killed = True
        launched.kill()
        kill_session(launched.pid)

    def _follow(self, launched: LaunchedRun) -> BaseException | None:
        try:
            for event in launched.events():
                if event["kind"] == "Started":
                    self._folder = Path(event["folder"])
                self._tell(self._cell, self._state, event)
        except (UserError, WorkerFailed) as error:
            return error
        return None

    def _settle(self, error: BaseException | None, failure: Mapping[str, Any], seconds: float) -> None:
        state, record = self._state, self._folder and read_run(self._folder)
        state.run = self._folder and self._folder.name
        if record is not None and is_result(record, state.out_of_time):
            state.seconds, state.error = seconds, None
            return self._change("done")
        reason = ((record and record.result) or {}).get("reason") or _in_short(error)
        is_usage_error = failure.get("exit_code") == USAGE_ERROR
        if failure.get("disk_full") or is_disk_full(error):
            self._give_back()
            raise UserError(
                f"{self._runs_dir}: the disk is full ({reason}), so the sweep ends here; what was finished stays. Free "
                "some space, then give the same command again."
            )
        if is_usage_error and self._progress.count("done", "failed") == 0:
            self._give_back()
            raise UserError(f"{self._sweep.where}: the script does not take these arguments: {reason}")
        if self._was_killed:
            limit = f"its {self._sweep.max_seconds:g} s were over"
            reason = f"it had not ended {GRACE_S:g} s after {limit}, and was killed: {reason}"
        state.error = reason
        is_chance = not (is_usage_error or self._was_killed or _is_refused(failure) or _was_stopped(record))
        return self._change("waiting" if is_chance and state.attempts < MOST_ATTEMPTS else "failed")

    def _give_back(self) -> None:
        self._state.attempts -= 1
        self._change("waiting")

    def _change(self, name: str, pid: int | None = None) -> None:
        state = self._state
        state.state, state.pid = name, pid
        if pid is not None:
            state.attempts, state.run, state.error, state.out_of_time = state.attempts + 1, None, None, False
            state.pid_started = process_started(pid) or 0.0
        state.save(self._states_folder)
        self._tell(self._cell, state, {"kind": "State"})

    @property
    def _states_folder(self) -> Path:
        return sweep_folder(self._runs_dir, self._sweep.name)


def _is_refused(failure: Mapping[str, Any]) -> bool:
    """Whether a cell failed for what its user has to mend; that memory ran out may be chance."""
    return bool(failure.get("refused")) and failure.get("status") != "out_of_memory"


def _was_stopped(record: RunRecord | None) -> bool:
    """Whether somebody asked the run to stop."""
    return record is not None and record.status == "stopped"


def _in_short(error: BaseException | None) -> str:
    """An error's first line, and the last that its script printed."""
    first, _, rest = str(error).strip().partition("\n")
    last = rest.strip().rpartition("\n")[2]
    return f"{first.removesuffix(':')}: {last}" if last and last not in first else first


def _earlier_s(sweep: Sweep, others: Sequence[RunRecord]) -> list[float]:
    """What other runs of its script took."""
    script = str(sweep.script.absolute())
    same = [record for record in others if restored(record.config.get("script")) == script and record.status == "done"]
    return [seconds for seconds in map(duration_s, same) if seconds is not None]

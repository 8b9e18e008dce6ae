"""Sweeps: the cells of a grid as launches, one after another or each on its own, and what became of each cell.

The records of the runs overrule the state file: a cell is done when a run of it is, whatever was written down.
"""

import contextlib
import os
import platform
import time
from collections import defaultdict
from collections.abc import Collection, Generator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

from labkit import UserError, errors, hardware, process, tracking
from labkit.hardware.leases import LEASED_VARIABLE
from labkit.launch.cells import Sweep
from labkit.launch.engine import End, Engine, OnEvent, Start, end_left_over
from labkit.launch.launches import FILE, LOCK, Head, Launches, Part
from labkit.runs import SILENT_S, RunRecord, read_run, readable_runs, restored, run_folders

FOLDER = "sweeps"
"""Below --runs-dir: a folder for each sweep, by its name"""
CELLS = "cells"
"""Below that: files of cells that ran on their own (`opened_cell`), which are newer than the sweep's"""
LOCK_WAIT_S = 60.0
"""Time in which many cells that start at once each look at the sweep"""
MOST_ATTEMPTS = 2
RESUME = "resume"
"""In `Part.more`: the run that was cut off, in which its cell goes on"""
USAGE_ERROR = 2
"""Exit status of a script whose command line does not know an argument"""
LOOK_S = 0.1
"""Seconds between two looks at whether a process has ended"""
MOST_LEAD_S = 60.0
"""Most seconds that a script prepares before its run begins"""
Found = dict[str, list[tuple[Path, RunRecord]]]
"""The runs of each cell of a sweep by its key, oldest first"""


@dataclass
class Progress:
    """How far a sweep is."""

    sweep: Sweep
    launches: Launches
    """Its cells by their keys; cells that were in its file once, too"""
    earlier_s: Sequence[float] = ()
    """Seconds that other runs of the script took"""

    def count(self, *statuses: str) -> int:
        """Number of cells with one of these statuses."""
        return sum(self.launches.parts[cell.key].status in statuses for cell in self.sweep.cells)

    @property
    def not_in_file(self) -> int:
        """Number of finished cells of this name that are not in the file any more."""
        keys = {cell.key for cell in self.sweep.cells}
        return sum(part.status == "done" and key not in keys for key, part in self.launches.parts.items())

    def time_left(self) -> tuple[float | None, str]:
        """Seconds that the cells to come will take, and by what: "cells", "runs", or "limit", which is the most.

        By the median of finished cells under the same budget, else that of earlier runs of the script, else the limit;
        (None, "") where one of them is not known.
        """
        took: dict[str, list[float]] = {}
        for part in self.launches.parts.values():
            if part.status == "done" and part.seconds is not None:
                took.setdefault(errors.certain(part.launch.job.budget).name, []).append(part.seconds)
        total, by = 0.0, "cells"
        for cell in self.sweep.cells:
            if self.launches.parts[cell.key].status not in ("waiting", "running"):
                continue
            if cell.budget.name in took:
                total += median(took[cell.budget.name])
            elif self.earlier_s:
                total, by = total + median(self.earlier_s), "runs" if by == "cells" else by
            elif self.sweep.max_seconds is not None:
                total, by = total + self.sweep.max_seconds, "limit"
            else:
                return None, ""
        return total, by


def sweep_folder(runs_dir: Path | str, name: str) -> Path:
    """The folder of the state of a sweep."""
    return Path(runs_dir) / FOLDER / name


def read_states(
    name: str, runs_dir: Path | str, *, alive: Collection[str] | None = None, key: str = "*"
) -> tuple[Launches, Found, list[RunRecord]]:
    """The state of a sweep as it was saved, and as its runs then say; those, and the records of all other runs.

    What was under way in a process that is gone waits again. Who holds the sweep's lock knows that no other process
    runs it, and of which cells processes of their own are `alive`; what the others left then ends. With `key` only
    that cell's own file is read, and only its runs end.
    """
    folder = sweep_folder(runs_dir, name)
    launches = Launches(folder, Head(kind="sweep", id=name))
    files = [folder / FILE] * (folder / FILE).is_file() + sorted((folder / CELLS).glob(f"{key}.jsonl"))
    for path in files:
        each = Launches.read(folder, file=str(path.relative_to(folder)))
        runs = each.head.status == "running" if alive is None else path.stem in alive
        under_way = [] if runs else [part for part in each.parts.values() if part.status == "running"]
        if under_way and alive is not None:
            end_left_over(each)
        for part in under_way:
            part.status, part.attempts, part.broken_off = "waiting", part.attempts - 1, part.broken_off + 1
        launches.head = each.head if path.name == FILE else launches.head
        launches.parts |= each.parts
    found, others = defaultdict(list), []
    for run_folder, record in readable_runs(run_folders(runs_dir)):
        swept = record.config.get("sweep", {})
        if swept.get("name") != name:
            others.append(record)
            continue
        is_left_over = alive is not None and swept["cell"] not in alive and key in ("*", swept["cell"])
        if record.status == "running" and is_left_over:
            record = ended_record(run_folder, record)
        found[swept["cell"]].append((run_folder, record))
    for own, part in launches.parts.items():
        reconcile(part, found[own])
    return launches, found, others


def is_result(record: RunRecord, out_of_time: bool) -> bool:
    """Whether a run came to an end of its own, or to that of its time: what it is then is its cell's result."""
    if record.status == "failed":
        return (record.result or {}).get("ended_by") == "diverged"
    return record.status == "done" or (record.status == "stopped" and out_of_time)


def reconcile(part: Part, runs: Sequence[tuple[Path, RunRecord]]) -> None:
    """Correct a state by the records of its runs; a run that was cut off goes on, or is repeated where it cannot."""
    failed = [(folder, record) for folder, record in runs if record.status == "failed"][part.forgiven :]
    # an attempt that broke off without a record counts for nothing; nor does a result that was deleted
    begun = 0 if part.status == "done" else part.attempts
    part.more.pop(RESUME, None)
    if ended := [(folder, record) for folder, record in runs if is_result(record, part.out_of_time)]:
        folder, _ = ended[-1]
        part.status, part.run, part.reason = "done", folder.name, ""
        part.attempts = max(part.attempts, 1)
    elif going_on := [folder for folder, record in runs if record.status == "running"]:
        part.status, part.run = "running", going_on[-1].name
    elif part.status not in ("failed", "running"):
        part.status, part.attempts = "waiting", begun
        if runs and goes_on(part, *runs[-1]):
            part.more[RESUME] = runs[-1][0].name
        if failed and len(failed) > begun:  # it was recorded, and the sweep ended before it knew
            folder, record = failed[-1]
            part.attempts, part.run, part.reason = len(failed), folder.name, (record.result or {}).get("reason") or ""
            part.status = "failed" if part.attempts >= MOST_ATTEMPTS else "waiting"
    if part.status != "done":
        part.out_of_time = False


def goes_on(part: Part, folder: Path, record: RunRecord) -> bool:
    """Whether a run that was cut off has a checkpoint to go on from.

    Where the engine counts a cell's time from the start of its process, a second process would give it more time.
    """
    is_cut_off = record.status in ("stopped", "interrupted") and part.launch.limit_s is None
    return is_cut_off and (folder / "checkpoint" / "latest.pt").exists()


def ended_record(folder: Path, record: RunRecord) -> RunRecord:
    """The record of a run whose sweep is gone, once it has ended: its process was thereby asked to, and is killed late.

    Raises:
        UserError: it goes on on another host.
    """
    is_here = record.host == platform.node()
    # a host that is gone is silent from now on
    until = time.monotonic() + process.GRACE_S + (0.0 if is_here else SILENT_S)
    while (record := read_run(folder)).status == "running" and time.monotonic() < until:
        time.sleep(LOOK_S)
    if record.status == "running" and is_here:
        process.kill_session(record.pid)
        return read_run(folder)
    if record.status == "running":
        raise UserError(f"{folder}: this run of the cell goes on on {record.host}: wait for it, or end it there.")
    return record


def _took_s(record: RunRecord) -> float:
    """Seconds that a run took, which has ended; with the start of its process, if nothing else ran in that."""
    times = record.started_at, errors.certain(record.ended_at)
    began, ended = (datetime.fromisoformat(each).timestamp() for each in times)
    lead_s = began - record.pid_started
    return ended - began + (lead_s if 0 < lead_s < MOST_LEAD_S else 0.0)


def read_progress(sweep: Sweep, runs_dir: Path, *, retry_failed: bool = False, **how: Any) -> Progress:
    """How far a sweep is, with `how` of `read_states`; without it nothing is started, waited for or written."""
    launches, found, others = read_states(sweep.name, runs_dir, **how)
    for cell in sweep.cells:
        part = launches.parts.setdefault(cell.key, Part(launch=sweep.launch(cell, launches.runs_dir)))
        reconcile(part, found[cell.key])
        if retry_failed and part.status == "failed":
            part.status, part.attempts = "waiting", 0
            part.forgiven = sum(record.status == "failed" for _, record in found[cell.key])
    script = str(sweep.script.absolute())
    earlier_s = [
        _took_s(record)
        for record in others
        if record.status == "done" and record.ended_at and restored(record.config.get("script")) == script
    ]
    return Progress(sweep, launches, earlier_s)


@contextlib.contextmanager
def opened(sweep: Sweep, runs_dir: Path, *, retry_failed: bool = False, elsewhere: bool = False) -> Generator[Progress]:
    """Hold a sweep for the block, in which `run_sweep` may run it; what an earlier process left of it has ended then.

    With `elsewhere` it only starts its cells somewhere else, and cells may have processes of their own meanwhile.

    Raises:
        UserError: another process runs it, or the disk is full.
    """
    launches = Launches(sweep_folder(runs_dir, sweep.name), Head(kind="sweep", id=sweep.name))
    with contextlib.ExitStack() as cells, launches.locked():
        (launches.folder / "logs").mkdir(exist_ok=True)
        alive = set()
        for path in sorted((launches.folder / CELLS).glob(f"*{LOCK}")):
            try:
                cells.enter_context(_own_file(launches, path.stem).locked())
            except UserError:
                if not elsewhere:
                    raise
                alive.add(path.stem)
        progress = read_progress(sweep, runs_dir, retry_failed=retry_failed, alive=alive)
        before = progress.launches
        # those that were under way when the sweep broke off come last: one may have taken the machine with it
        for cell in sorted(sweep.cells, key=lambda each: before.parts[each.key].broken_off):
            part = launches.parts[cell.key] = before.parts.pop(cell.key)
            part.launch = sweep.launch(cell, runs_dir)
        for key, part in before.parts.items():  # they were in its file once
            part.status = "left_out" if part.status == "waiting" else part.status
            launches.parts[key] = part
        launches.write()
        for path in (launches.folder / CELLS).glob("*.jsonl"):
            if path.stem not in alive:  # the sweep's file has it now
                path.unlink()
        cells.close()
        yield replace(progress, launches=launches)


@contextlib.contextmanager
def opened_cell(sweep: Sweep, runs_dir: Path, *, retry_failed: bool = False) -> Generator[Progress]:
    """Hold the one cell of a `Sweep.only` for the block, in which `run_sweep` may run it, next to others.

    Any number of processes may do so on any number of hosts that share the folder: of one cell one at a time.

    Raises:
        UserError: another process runs the cell or the whole sweep, or the disk is full.
    """
    (cell,) = sweep.cells
    whole = Launches(sweep_folder(runs_dir, sweep.name), Head(kind="sweep", id=sweep.name))
    launches = _own_file(whole, cell.key)
    with contextlib.ExitStack() as stack:
        with whole.locked(LOCK_WAIT_S):
            stack.enter_context(launches.locked())
        (launches.folder / "logs").mkdir(exist_ok=True)
        progress = read_progress(sweep, runs_dir, retry_failed=retry_failed, alive=(), key=cell.key)
        part = launches.parts[cell.key] = progress.launches.parts[cell.key]
        part.launch = sweep.launch(cell, runs_dir)
        launches.write()
        yield replace(progress, launches=launches)


def _own_file(sweep: Launches, key: str) -> Launches:
    """The file of a cell that runs on its own."""
    return Launches(sweep.folder, Head(kind="sweep", id=sweep.head.id), file=f"{CELLS}/{key}.jsonl")


def run_sweep(progress: Progress, on_event: OnEvent, stop: "tracking.StopRequest") -> None:
    """Run what waits of a sweep that is `opened`, in its order.

    A cell that crashed, was killed or ran out of memory is tried once more, then has failed. `stop` stops the run under
    way politely, and its cell waits again.

    Raises:
        UserError: the disk is full, or a script does not know the arguments of the very first cell.
    """
    _SweepEngine(progress, on_event, stop).run()


class _SweepEngine(Engine):
    """One cell after another."""

    def __init__(self, progress: Progress, on_event: OnEvent, stop: "tracking.StopRequest"):
        super().__init__(progress.launches, stop=stop, on_event=on_event)
        self._progress, self._sweep = progress, progress.sweep
        self._cores = contextlib.ExitStack()
        """Those of the cell under way"""

    def begin(self, parts: Sequence[Part]) -> list[Start]:
        (part,) = parts

        def say(words: str) -> None:
            self.on_event(part, {"kind": "Notice", "text": words})

        # here and not in its own process, so that waiting for cores is none of its time
        if cores := errors.certain(part.launch.job.budget).cores:
            self._cores.enter_context(hardware.leased_cores(cores, say=say, stopped=lambda: bool(self.stop)))
        run = part.more.get(RESUME)
        command = replace(part.launch.job, resume=str(self.launches.runs_dir / run)) if run else part.launch.job
        # by this variable what it starts may use the cores that this process has leased
        return [Start(command, {name: value for name, value in os.environ.items() if name == LEASED_VARIABLE})]

    def settle(self, part: Part, end: End) -> None:
        self._cores.close()
        record = self.launches.record_of(part)
        was_resumed = part.more.pop(RESUME, None) is not None
        if record is not None and is_result(record, part.out_of_time):
            part.status, part.reason = "done", ""
            (self.launches.folder / part.log).unlink(missing_ok=True)
            return
        reason = ((record.result if record else None) or {}).get("reason") or end.reason
        is_usage_error = end.said.get("exit_code") == USAGE_ERROR
        if end.said.get("disk_full"):
            self._give_back(part)
            raise UserError(
                f"{self.launches.runs_dir}: the disk is full ({reason}), so the sweep ends here; what was finished "
                "stays. Free some space, then give the same command again."
            )
        if is_usage_error and self._progress.count("done", "failed") == 0:
            self._give_back(part)
            raise UserError(f"{self._sweep.where}: the script does not take these arguments: {reason}")
        was_killed = part.out_of_time and end.was_asked and (end.exit_status or 0) < 0
        was_cut_off = end.status == "stopped" or record is None or record.status in ("stopped", "interrupted")
        if self.stop and was_cut_off and not was_killed:
            return self._give_back(part)
        if was_resumed and end.said.get("refused"):  # as on another kind of machine: it starts again
            return self._give_back(part)
        if was_killed:
            limit = f"its {part.launch.limit_s:g} s were over"
            reason = f"it had not ended {self.grace_s:g} s after {limit}, and was killed"
        # what its user has to fix fails again; that memory ran out may be chance
        is_refused = end.said.get("refused") and end.status != "out_of_memory"
        was_stopped = record is not None and record.status == "stopped"
        is_chance = not (is_usage_error or was_killed or is_refused or was_stopped)
        part.reason = reason
        part.status = "waiting" if is_chance and part.attempts < MOST_ATTEMPTS else "failed"

    def _give_back(self, part: Part) -> None:
        part.attempts -= 1
        part.wait_again()
        self.launches.save(part)

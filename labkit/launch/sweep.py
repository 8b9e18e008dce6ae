"""Sweeps: the cells of a grid as launches one after another, and what became of each cell.

The records of the runs overrule the state file: a cell is done when a run of it is, whatever was written down.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from labkit import UserError, errors, hardware, jobs, process, tracking
from labkit.launch.engine import End, Engine, Start, end_left_over, lent_cores
from labkit.launch.launches import FILE, Head, Launch, Launches, Part
from labkit.runs import RunRecord, is_alive, read_run, readable_runs, restored, run_folders

FOLDER = "sweeps"
"""Below --runs-dir: a folder for each sweep, by its name"""
MOST_ATTEMPTS = 2
USAGE_ERROR = 2
"""Exit status by which argparse ends a script whose arguments it does not know"""
LOOK_S = 0.1
"""Seconds between two looks at whether a process has ended"""
MOST_LEAD_S = 60.0
"""Most seconds that a script prepares before its run begins"""

Found = dict[str, list[tuple[Path, RunRecord]]]
"""The runs of each cell of a sweep by its key, oldest first"""
OnSweepEvent = Callable[[Part, dict[str, Any]], None]


@dataclass(frozen=True)
class Cell:
    """One run of a sweep, as it was asked for."""

    key: str
    """Name of all that decides its result, but not of its run folder or of where it was asked for"""
    settings: Mapping[str, Any]
    """Those that the sweep varies: numbers of labkit's jobs are numbers, those of a script are all texts"""
    job: jobs.Job | jobs.ScriptJob
    budget: hardware.Budget
    seed: int | None
    """None where the sweep of a script names none"""
    repeat: int
    """From 1"""


@dataclass(frozen=True)
class Sweep:
    """Cells of one job or script, in the order in which they run."""

    name: str
    """Name of its folder, `RUNS_DIR/sweeps/NAME`"""
    job: str
    """dlrm:tour, or the name of a script"""
    script: Path
    cells: tuple[Cell, ...]
    varies: Mapping[str, int]
    """What varies (settings, seed, budget, repeat), and the number of its values"""
    max_seconds: float | None = None
    """Longest time of a run: one of labkit's jobs ends itself, a script is asked to end"""
    limits_process: bool = False
    """Whether max_seconds is counted from the start of its process, by the engine"""
    where: str = ""
    """Where the job was named: a file and its line"""

    def words(self, cell: Cell) -> str:
        """What tells a cell from the others: "batch_size 128, seed 1"."""
        told = {**cell.settings, "seed": cell.seed, "budget": cell.budget.name, "repeat": cell.repeat}
        return ", ".join(f"{name} {told[name]}" for name in self.varies if name in told)

    def command(self, cell: Cell, runs_dir: Path | str) -> tracking.ScriptCommand:
        """The command that runs a cell."""
        told = {"name": self.name, "cell": cell.key, "settings": dict(cell.settings), "repeat": cell.repeat}
        command = cell.job.command(runs_dir=str(runs_dir), budget=cell.budget, sweep=told)
        is_script = isinstance(cell.job, jobs.ScriptJob) and cell.job.takes_seed
        return command.seeded(cell.seed) if is_script and cell.seed is not None else command

    def launch(self, cell: Cell, runs_dir: Path | str, after: tuple[str, ...] = ()) -> Launch:
        """A cell as a launch, whose name is its key."""
        limit_s = self.max_seconds if self.limits_process else None
        about = {"settings": dict(cell.settings), "seed": cell.seed, "repeat": cell.repeat}
        return Launch(cell.key, self.command(cell, runs_dir), self.job, after=after, limit_s=limit_s, about=about)


def cell_key(*decisive: Any) -> str:
    """A short name for JSON-able values, the same for the same values wherever and whenever it is asked for.

    >>> cell_key("dlrm", {"lr": "0.001"}) == cell_key("dlrm", {"lr": "0.001"}) != cell_key("dlrm", {"lr": "0.002"})
    True
    """
    return hashlib.blake2s(json.dumps(decisive, sort_keys=True).encode(), digest_size=6).hexdigest()


@dataclass
class Progress:
    """How far a sweep is."""

    sweep: Sweep
    launches: Launches
    """Its cells by their keys; cells that were in its file once, too"""
    earlier_s: Sequence[float] = field(default=())
    """Seconds that other runs of the script took"""

    @property
    def states(self) -> dict[str, Part]:
        return self.launches.parts

    def count(self, *statuses: str) -> int:
        """Number of cells with one of these statuses."""
        return sum(self.states[cell.key].status in statuses for cell in self.sweep.cells)

    @property
    def not_in_file(self) -> int:
        """Number of finished cells of this name that are not in the file any more."""
        keys = {cell.key for cell in self.sweep.cells}
        return sum(part.status == "done" and key not in keys for key, part in self.states.items())

    def time_left(self) -> tuple[float | None, str]:
        """Seconds that the cells to come will take, and by what: "cells", "runs", or "limit", which is the most.

        By the median of finished cells under the same budget, else that of earlier runs of the script, else the limit;
        (None, "") where one of them is not known.
        """
        known: dict[str, list[float]] = {}
        for part in self.states.values():
            if part.status == "done" and part.seconds is not None:
                known.setdefault(budget_name(part), []).append(part.seconds)
        total, by = 0.0, "cells"
        for cell in self.sweep.cells:
            if self.states[cell.key].status not in ("waiting", "running"):
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


def budget_name(part: Part) -> str:
    """The name of the budget of a launch."""
    return part.launch.job.budget.name


def sweep_folder(runs_dir: Path | str, name: str) -> Path:
    """The folder of the state of a sweep."""
    return Path(runs_dir) / FOLDER / name


def check_sweep(name: str, runs_dir: Path) -> None:
    """Raise a UserError where no sweep of that name has run."""
    folder = sweep_folder(runs_dir, name)
    if (folder / FILE).is_file():
        return
    if folder.is_dir():
        raise UserError(f"{folder}: an earlier version of labkit ran this sweep: give its file instead of its name.")
    known = sorted(path.name for path in (Path(runs_dir) / FOLDER).glob("*/"))
    hint = errors.did_you_mean(name, known) if known else "none has run there: start one with `labkit sweep FILE`."
    raise UserError(f"there is no sweep {name!r} in {runs_dir}: {hint}")


def read_states(name: str, runs_dir: Path | str) -> Launches:
    """The state of a sweep as it was saved; no launches where none was."""
    folder = sweep_folder(runs_dir, name)
    return Launches.read(folder) if (folder / FILE).is_file() else Launches(folder, Head(kind="sweep", id=name))


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


def reconcile(part: Part, runs: Sequence[tuple[Path, RunRecord]]) -> None:
    """Correct a state by the records of its runs; a run that was cut off with the sweep is to be repeated."""
    failed = [(folder, record) for folder, record in runs if record.status == "failed"][part.forgiven :]
    # an attempt that broke off without a record counts for nothing; nor does a result that was deleted
    begun = 0 if part.status == "done" else part.attempts - (part.status == "running")
    if ended := [(folder, record) for folder, record in runs if is_result(record, part.out_of_time)]:
        folder, _ = ended[-1]
        part.status, part.run, part.reason = "done", folder.name, ""
        part.attempts = max(part.attempts, 1)
    elif part.status != "failed":
        part.broken_off += part.status == "running"
        part.status, part.attempts = "waiting", begun
        if failed and len(failed) > begun:  # it was recorded, and the sweep ended before it knew
            folder, record = failed[-1]
            part.attempts, part.run, part.reason = len(failed), folder.name, (record.result or {}).get("reason") or ""
            part.status = "failed" if part.attempts >= MOST_ATTEMPTS else "waiting"
    if part.status != "done":
        part.out_of_time = False


def duration_s(record: RunRecord) -> float | None:
    """Seconds from the beginning of a run's process to its end; None for one that has not ended."""
    from datetime import datetime

    if record.ended_at is None:
        return None
    began = datetime.fromisoformat(record.started_at).timestamp()
    lead_s = began - record.pid_started  # a notebook's process may have been there for hours
    lead_s = lead_s if 0 < lead_s < MOST_LEAD_S else 0.0
    return datetime.fromisoformat(record.ended_at).timestamp() - began + lead_s


def end_orphan(pid: int, pid_started: float) -> None:
    """Wait for the process of a run whose sweep was killed, which thereby asked it to end; kill one that does not."""
    until = time.monotonic() + process.GRACE_S
    while is_alive(pid, pid_started) and time.monotonic() < until:
        time.sleep(LOOK_S)
    if is_alive(pid, pid_started):
        process.kill_session(pid)


def read_progress(sweep: Sweep, runs_dir: Path) -> Progress:
    """How far a sweep is; nothing is started, waited for or written."""
    launches = read_states(sweep.name, runs_dir)
    found, others = find_runs(sweep.name, runs_dir)
    for cell in sweep.cells:
        part = launches.parts.setdefault(cell.key, Part(launch=sweep.launch(cell, runs_dir)))
        reconcile(part, found.get(cell.key, []))
    return Progress(sweep, launches, _earlier_s(sweep, others))


@contextlib.contextmanager
def opened(sweep: Sweep, runs_dir: Path, *, retry_failed: bool = False) -> Generator[Progress]:
    """Hold a sweep for the block, in which `run_sweep` may run it; what an earlier process left of it has ended then.

    Raises:
        UserError: another process runs it, or the disk is full.
    """
    launches = Launches(sweep_folder(runs_dir, sweep.name), Head(kind="sweep", id=sweep.name))
    with launches.locked():
        (launches.folder / "logs").mkdir(exist_ok=True)
        before = read_states(sweep.name, runs_dir)
        end_left_over(before)
        found, others = find_runs(sweep.name, runs_dir)
        for runs in found.values():
            for number, (path, record) in enumerate(runs):
                if record.status == "running":
                    end_orphan(record.pid, record.pid_started)
                    runs[number] = path, read_run(path)
        parts = []
        for cell in sweep.cells:
            part = before.parts.pop(cell.key, None) or Part(launch=sweep.launch(cell, runs_dir))
            runs = found.get(cell.key, [])
            reconcile(part, runs)
            if retry_failed and part.status == "failed":
                part.status, part.attempts = "waiting", 0
                part.forgiven = sum(record.status == "failed" for _, record in runs)
            parts.append((cell, part))
        after: tuple[str, ...] = ()
        # those that were under way when the sweep broke off come last: one may have taken the machine with it
        for cell, part in sorted(parts, key=lambda each: each[1].broken_off):
            part.launch = sweep.launch(cell, runs_dir, after)
            launches.parts[cell.key], after = part, (cell.key,)
        for key, part in before.parts.items():  # they were in its file once
            reconcile(part, found.get(key, []))
            part.status = "left_out" if part.status == "waiting" else part.status
            launches.parts[key] = part
        launches.write()
        yield Progress(sweep, launches, _earlier_s(sweep, others))


def run_sweep(progress: Progress, on_event: OnSweepEvent, stop: tracking.StopRequest) -> None:
    """Run what waits of a sweep that is `opened`, in its order.

    A cell that crashed, was killed or ran out of memory is tried once more, then has failed. `stop` stops the run under
    way politely, and its cell waits again.

    Raises:
        UserError: the disk is full, or a script does not know the arguments of the very first cell.
    """
    _SweepEngine(progress, on_event, stop).run()


class _SweepEngine(Engine):
    """One cell after another."""

    def __init__(self, progress: Progress, on_event: OnSweepEvent, stop: tracking.StopRequest):
        super().__init__(progress.launches, stop=stop, on_event=on_event)
        self._progress, self._sweep = progress, progress.sweep
        self._cores = contextlib.ExitStack()
        """Those of the cell under way"""

    def begin(self, parts: Sequence[Part]) -> list[Start]:
        (part,) = parts

        def say(words: str) -> None:
            self.on_event(part, {"kind": "Notice", "text": words})

        # here and not in its own process, so that waiting for cores is none of its time
        if cores := part.launch.job.budget.cores:
            self._cores.enter_context(hardware.leased_cores(cores, say=say, stopped=lambda: bool(self.stop)))
        return [Start(part.launch.job, lent_cores())]

    def settle(self, part: Part, end: End) -> None:
        self._cores.close()
        record = self.launches.record_of(part)
        if record is not None and is_result(record, part.out_of_time):
            part.status, part.reason = "done", ""
            (self.launches.folder / part.log).unlink(missing_ok=True)
            return
        reason = ((record and record.result) or {}).get("reason") or end.reason
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
        was_killed = end.was_killed and part.out_of_time
        if self.stop and end.status == "stopped" and not was_killed:
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


def _earlier_s(sweep: Sweep, others: Sequence[RunRecord]) -> list[float]:
    """Seconds that other runs of its script took."""
    script = str(sweep.script.absolute())
    same = [record for record in others if restored(record.config.get("script")) == script and record.status == "done"]
    return [seconds for seconds in map(duration_s, same) if seconds is not None]

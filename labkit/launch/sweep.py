"""Sweeps: the cells of a grid as launches one after another, and what became of each cell, also as a frame.

The records of the runs overrule the state file: a cell is done when a run of it is, whatever was written down.
"""

import contextlib
import time
from collections import defaultdict
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from labkit import UserError, errors, hardware, process, tracking, tta
from labkit.launch.engine import End, Engine, OnEvent, Start, end_left_over, lent_cores
from labkit.launch.launches import FILE, Head, Launches, Part
from labkit.launch.sweep_file import Sweep, find_sweep_file, read_sweep_file
from labkit.runs import RunRecord, is_alive, read_metrics, read_run, readable_runs, restored, run_folders

if TYPE_CHECKING:
    import pandas as pd

FOLDER = "sweeps"
"""Below --runs-dir: a folder for each sweep, by its name"""
MOST_ATTEMPTS = 2
USAGE_ERROR = 2
"""Exit status of a script whose command line does not know an argument"""
LOOK_S = 0.1
"""Seconds between two looks at whether a process has ended"""
OF_A_CELL = ["budget", "seed", "repeat", "state", "run", "folder", "seconds", "error"]
OF_ITS_RUN = [
    "provenance", "disturbed", "samples_per_s", "wall_s", "train_s", "samples", "peak_memory_bytes",
    "peak_gpu_memory_bytes", "energy_j",
]  # fmt: skip
"""Columns of `labkit.tta.run_table`"""
OF_ITS_TARGET = ["target_reached", "time_to_target_s", "cost_usd"]
Found = dict[str, list[tuple[Path, RunRecord]]]
"""The runs of each cell of a sweep by its key, oldest first"""


MOST_LEAD_S = 60.0
"""Most seconds that a script prepares before its run begins"""


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


def find_runs(name: str, runs_dir: Path, *, ends_running: bool = False) -> tuple[Found, list[RunRecord]]:
    """The runs of a sweep below a folder, and the records of all other runs.

    With `ends_running`, waits for runs of the sweep that still go on, and kills those that do not end.
    """
    found, others = defaultdict(list), []
    for folder, record in readable_runs(run_folders(runs_dir)):
        swept = record.config.get("sweep", {})
        if swept.get("name") == name:
            if ends_running and record.status == "running":
                end_orphan(record.pid, record.pid_started)
                record = read_run(folder)
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
    return _reconciled(sweep, launches, found, others)


def _took_s(record: RunRecord) -> float:
    """Seconds that a run took, which has ended; with the start of its process, if nothing else ran in that."""
    times = record.started_at, errors.certain(record.ended_at)
    began, ended = (datetime.fromisoformat(each).timestamp() for each in times)
    lead_s = began - record.pid_started
    return ended - began + (lead_s if 0 < lead_s < MOST_LEAD_S else 0.0)


def _reconciled(sweep: Sweep, launches: Launches, found: Found, others: Sequence[RunRecord]) -> Progress:
    for cell in sweep.cells:
        part = launches.parts.setdefault(cell.key, Part(launch=sweep.launch(cell, launches.runs_dir)))
        reconcile(part, found.get(cell.key, []))
    script = str(sweep.script.absolute())
    earlier_s = [
        _took_s(record)
        for record in others
        if record.status == "done" and record.ended_at and restored(record.config.get("script")) == script
    ]
    return Progress(sweep, launches, earlier_s)


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
        found, others = find_runs(sweep.name, runs_dir, ends_running=True)
        progress = _reconciled(sweep, before, found, others)
        after: tuple[str, ...] = ()
        # those that were under way when the sweep broke off come last: one may have taken the machine with it
        for cell in sorted(sweep.cells, key=lambda each: before.parts[each.key].broken_off):
            part = launches.parts[cell.key] = before.parts.pop(cell.key)
            part.launch, after = sweep.launch(cell, runs_dir, after), (cell.key,)
            if retry_failed and part.status == "failed":
                part.status, part.attempts = "waiting", 0
                part.forgiven = sum(record.status == "failed" for _, record in found.get(cell.key, []))
        for key, part in before.parts.items():  # they were in its file once
            reconcile(part, found.get(key, []))
            part.status = "left_out" if part.status == "waiting" else part.status
            launches.parts[key] = part
        launches.write()
        yield replace(progress, launches=launches)


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
        return [Start(part.launch.job, lent_cores())]

    def settle(self, part: Part, end: End) -> None:
        self._cores.close()
        record = self.launches.record_of(part)
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


def read_sweep(sweep: Path | str, runs_dir: Path | str = "runs") -> "pd.DataFrame":
    """Read what became of a sweep, finished or not: one row per cell in the order in which they run.

    Args:
        sweep: the path of its file, whose cells count; or the name of a sweep that has run, of which all count that
            ever were in its file; or that of a study that ships.
        runs_dir: the folder with the runs.

    Returns:
        The settings that vary, each a column (of numbers where all of its values are), then OF_A_CELL (seconds is what
        the process took), OF_ITS_RUN and OF_ITS_TARGET (cost_usd is the time to the target at the tier's price), then
        the last value of each number that the script evaluated or logged, and test_NAME of its test split. Cells
        without a result have NaN there. A setting or number named as another column is NAME_setting or NAME_logged.

    Raises:
        UserError: there is no such sweep, or its file has mistakes.
    """
    import pandas as pd

    runs_dir, path = Path(runs_dir), Path(sweep)
    if not path.is_file() and not sweep_folder(runs_dir, str(sweep)).is_dir():
        path = find_sweep_file(path)
    if path.is_file() or path.suffix in (".yaml", ".yml"):
        asked = read_sweep_file(path)
        launches = read_states(asked.name, runs_dir)
        parts = [launches.parts.get(cell.key, Part(launch=asked.launch(cell, runs_dir))) for cell in asked.cells]
    else:
        check_sweep(str(sweep), runs_dir)
        launches = read_states(str(sweep), runs_dir)
        parts = list(launches.parts.values())
    found, _ = find_runs(launches.head.id, runs_dir)
    for part in parts:
        if launches.head.status != "running" or part.status != "running":
            reconcile(part, found.get(part.name, []))
    settings = pd.DataFrame([part.launch.about["settings"] for part in parts])
    table = settings.apply(_as_numbers).rename(columns=lambda name: _free(name, "setting"))
    cells = [
        {
            "budget": errors.certain(part.launch.job.budget).name,
            "seed": part.launch.about["seed"],
            "repeat": part.launch.about["repeat"],
            "state": part.status,
            "run": part.run,
            "folder": part.run and str(launches.runs_dir / part.run),
            "seconds": part.seconds,
            "error": part.reason or None,
        }
        for part in parts
    ]
    table = table.join(pd.DataFrame(cells, columns=OF_A_CELL), how="right")
    done = {runs_dir / errors.certain(part.run): part for part in parts if part.status == "done"}
    records = {folder: dict(found[part.name])[folder] for folder, part in done.items()}
    return table.merge(_results(records), on="run", how="left")


def _results(records: dict[Path, RunRecord]) -> "pd.DataFrame":
    """One row a run: run, OF_ITS_RUN, OF_ITS_TARGET, last values."""
    import pandas as pd

    runs = tta.table_of(records.items())
    targets = [{"run": folder.name} | (record.result or {}) for folder, record in records.items()]
    ends = pd.DataFrame(targets, columns=["run", "target_reached", "time_to_target_s"])
    ends["time_to_target_s"] = ends["time_to_target_s"].astype(float)
    ends["cost_usd"] = ends["time_to_target_s"] * tta.usd_per_s(runs["tier"])
    last = read_metrics(records).groupby(["run", "name"]).tail(1)  # .last() would pass over a NaN
    last = last.set_index(["run", "name"])["value"].unstack("name")
    tests = {folder.name: (record.result or {}).get("metrics", {}) for folder, record in records.items()}
    tested = pd.DataFrame.from_dict(tests, orient="index").add_prefix("test_")
    numbers = last.join(tested, how="outer").rename(columns=lambda name: _free(name, "logged"))
    return runs[["run", *OF_ITS_RUN]].merge(ends, on="run").merge(numbers, left_on="run", right_index=True, how="left")


def _free(name: str, kind: str) -> str:
    return f"{name}_{kind}" if name in (*OF_A_CELL, *OF_ITS_RUN, *OF_ITS_TARGET) else name


def _as_numbers(column: "pd.Series") -> "pd.Series":
    """The column as numbers, where all of its values are."""
    import pandas as pd

    numbers = pd.to_numeric(column, errors="coerce")
    return numbers if numbers.notna().sum() == column.notna().sum() else column

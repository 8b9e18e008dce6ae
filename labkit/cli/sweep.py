"""`labkit sweep`: a grid of runs from a file, and what came of it. `labkit tour`: every job under every budget."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit import UserError, launch, plots, report, runs, tracking, tta
from labkit.cli.console import Console, Display, json_rows, print_frame
from labkit.cli.flags import add_command, refuse_unless_positive
from labkit.cli.printing import print_json

if TYPE_CHECKING:
    import pandas as pd

EPILOG = """examples:
  labkit sweep dlrm_batch_accuracy --dry-run        (a study that ships)
  labkit sweep sweep.yaml
  labkit sweep sweep.yaml --executor slurm --slurm "--partition=gpu --time=4:00:00" --at-most 20
  labkit sweep show sweep.yaml --x batch_size --y samples_per_s --html sweep.html
The same command continues a sweep that was stopped or killed, or whose file has more values now. docs/sweeps.md has
the fields of a file, docs/clusters.md what Slurm and other schedulers need.
"""
MOST_LINES = 8
"""Most lines of a figure whose reader did not choose them"""
MOST_RESULTS = 8
"""Columns of results that a table of the terminal has"""
BY = {
    "cells": "as its cells have taken",
    "runs": "estimated from earlier runs of the script, whatever their settings",
    "limit": "by max_seconds",
}


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    about = "Run each cell of a grid of settings, seeds and budgets: one after another, or as tasks of Slurm."
    add = add_command(
        subparsers, "sweep", description=about, examples=EPILOG, run=run_sweep, flags="runs_dir json"
    ).add_argument
    add("file", type=Path, metavar="FILE", help="a sweep in YAML, or the name of a study that ships")
    add("--dry-run", action="store_true", help="say how many cells there are and how long they take; start nothing")
    add("--retry-failed", action="store_true", help="try cells that have failed again")
    add("--executor", choices=("local", "slurm"), default="local", help="run cells here, or by Slurm (default: local)")
    add("--slurm", metavar="FLAGS", help='flags of sbatch, such as "--partition=gpu --time=4:00:00"')
    add("--at-most", type=int, metavar="N", help="tasks of Slurm that may run at the same time")
    add("--cell", metavar="KEY", help="run this cell alone: for schedulers, which may call this twice")

    about = "Print a row for each cell of a sweep, finished or not, and draw what came of a setting."
    add = add_command(subparsers, "sweep show", description=about, run=run_show, flags="runs_dir json").add_argument
    add("sweep", metavar="FILE|NAME", help="a sweep's file, or the name of one that has run")
    add("--x", metavar="COLUMN", help="across (default: the setting with the most values)")
    add("--y", metavar="COLUMN", help="upwards (default: samples_per_s)")
    add("--color", metavar="COLUMN", help="a line for each of its values (default: another setting, or the budget)")
    add("--html", type=Path, metavar="FILE", help="write the figure as a page that works offline")
    add("--csv", type=Path, metavar="FILE", help="write all columns as CSV; the table has the first")

    about = (
        "Train a DLRM and a speech recogniser to their targets under every budget this machine offers, three seeds "
        "each; then print the table and write the page."
    )
    tour = add_command(subparsers, "tour", description=about, run=run_tour, flags="runs_dir out")
    add, both = tour.add_argument, ("dlrm", "speech")
    add("--jobs", nargs="+", choices=both, default=both, help="which jobs")
    add("--seeds", nargs="+", type=int, default=[0, 1, 2], metavar="N", help="which seeds (default: 0 1 2)")


def run_sweep(args: argparse.Namespace) -> int:
    _refuse_flags(args)
    if args.cell is not None:
        return run_cell(args)
    there = "" if args.runs_dir == Path("runs") else f" --runs-dir {args.runs_dir}"
    sweep, console = launch.read_sweep_file(args.file), Console(stderr=args.json)
    if args.dry_run:
        progress = launch.read_progress(sweep, args.runs_dir)
        print_preview(console, progress)
        print_queue(console, progress)
    elif args.executor == "slurm":
        with launch.opened(sweep, args.runs_dir, retry_failed=args.retry_failed, elsewhere=True) as progress:
            print_preview(console, progress)
            flags = {"flags": args.slurm or "", "at_most": args.at_most}
            jobs = launch.submit(progress, launch.find_sweep_file(args.file), args.runs_dir, **flags)
            if jobs:
                console.print_line(f"Submitted to Slurm as {', '.join(jobs)}: `scancel {' '.join(jobs)}` stops it.")
            print_queue(console, progress)
            console.print_line(f"`labkit sweep {args.file} --dry-run{there}` says how far it is.")
    else:
        with launch.opened(sweep, args.runs_dir, retry_failed=args.retry_failed) as progress:
            print_preview(console, progress)
            with tracking.StopRequest() as stop, SweepDisplay(console, progress, args.runs_dir) as display:
                launch.run_sweep(progress, display.show_part, stop)
            if stop:
                again = f"{_counts(progress)}. Continue with the same command: labkit sweep {args.file}{there}"
                console.print_line(again)
                raise KeyboardInterrupt
        console.print_line(f"{_counts(progress)}. `labkit sweep show {args.file}{there}` has the table.")
    if args.json:
        counts = {state: progress.count(state) for state in ("done", "failed", "running", "waiting")}
        seconds, by = progress.time_left()
        count, parts = len(sweep.cells), progress.launches.parts
        keys = [cell.key for cell in sweep.cells if parts[cell.key].status == "waiting"]
        more = {"predicted_s": seconds, "predicted_by": by, "waiting_keys": keys}
        print_json({"name": sweep.name, "cells": count, **counts, **more})
    return int(not args.dry_run and progress.count("failed") > 0)


def _refuse_flags(args: argparse.Namespace) -> None:
    for flag, value in (("--slurm", args.slurm), ("--at-most", args.at_most)):
        if value is not None and args.executor != "slurm":
            raise UserError(f"{flag} is for Slurm: add --executor slurm, or omit it.")
    refuse_unless_positive(at_most=args.at_most)
    if args.cell is not None and (args.dry_run or args.executor != "local"):
        raise UserError("--cell runs one cell on this machine: omit --dry-run and --executor.")


def run_cell(args: argparse.Namespace) -> int:
    """Run one cell, under what this process was given; 0 if it is done, before or now, and 1 if it has failed."""
    console = Console(stderr=args.json)
    with tracking.StopRequest() as stop:
        launch.take_cores(console.print_line, lambda: bool(stop))
        sweep = launch.read_sweep_file(args.file).only(args.cell)  # whose budgets are parts of those cores
        with launch.opened_cell(sweep, args.runs_dir, retry_failed=args.retry_failed) as progress:
            part, name = progress.launches.parts[args.cell], sweep.words(sweep.cells[0]) or sweep.job
            if part.has_ended:
                again = "; --retry-failed tries it again" * (part.status == "failed")
                console.print_line(f"{name}: {part.status} already{again}.")
            else:
                with SweepDisplay(console, progress, args.runs_dir) as display:
                    launch.run_sweep(progress, display.show_part, stop)
    if stop and not part.has_ended:
        raise KeyboardInterrupt
    if args.json:
        print_json({"cell": args.cell, "state": part.status, "run": part.run, "error": part.reason or None})
    return int(part.status != "done")


def print_queue(console: Console, progress: launch.Progress) -> None:
    """Print how many tasks of a sweep are in Slurm's queue, if it was ever submitted."""
    tasks = {part.more[launch.TASK] for part in progress.launches.parts.values() if launch.TASK in part.more}
    if tasks:
        try:
            console.print_line(f"In Slurm's queue: {len(tasks & launch.queued())} of its tasks.")
        except UserError as error:
            console.print_line(f"Its tasks in Slurm's queue are not known: {error}")


def print_preview(console: Console, progress: launch.Progress) -> None:
    """Print how many cells there are, what varies, how long they will take, and what cannot run."""
    sweep = progress.sweep
    varies = " × ".join(f"{name} ({count})" for name, count in sweep.varies.items()) or "nothing"
    cells = f"{plots.counted(len(sweep.cells), 'cell')} of {sweep.job}"
    lines = [f"{sweep.name}: {cells}; what varies: {varies}; {_counts(progress)}."]
    if progress.count("waiting", "running"):
        lines.append(f"Time left: {_time_left(progress, why=True) or 'not known until the first cell has ended'}.")
    if progress.count("failed"):
        lines.append("Failed cells stay so; --retry-failed tries them again.")
    if progress.not_in_file:
        lines.append(f"{progress.not_in_file} finished cells of this name are not in this file any more; they stay.")
    parts = progress.launches.parts
    if large := [each for each in launch.cells_too_large(sweep) if parts[each[0].key].status == "waiting"]:
        cell, why = large[0]
        lines.append(
            f"No room for {len(large)} of them here and now, which will say so and fail: {sweep.words(cell)}: {why}"
        )
    for line in lines:
        console.print_line(line)


def _counts(progress: launch.Progress) -> str:
    failed, running = progress.count("failed"), progress.count("running")
    counts = f"{progress.count('done')} of {len(progress.sweep.cells)} done" + f", {failed} failed" * bool(failed)
    return counts + f", {running} running" * bool(running)


def _time_left(progress: launch.Progress, *, why: bool = False) -> str:
    """The time left as text, and what it rests on; empty where it is not known."""
    seconds, by = progress.time_left()
    if seconds is None:
        return ""
    return f"{'at most' if by == 'limit' else 'about'} {plots.seconds_text(seconds)}" + f", {BY[by]}" * why


class TourDisplay(Display):
    """The run under way, and a line for each that has ended."""

    def __init__(self, console: Console, runs_dir: Path, *, evaluations: bool = True):
        super().__init__(console, evaluations=evaluations)
        self._runs_dir = runs_dir

    def name_of(self, part: launch.Part) -> str:
        return "{job} {budget} seed {seed}".format(**part.launch.about)

    def show_state(self, part: launch.Part) -> None:
        if part.status == "running":
            return
        self.says(self.name_of(part), None)
        if part.status != "waiting" or part.reason:  # else it was interrupted
            self.print(self.line_of(part), "red" if part.status == "failed" else "")

    def line_of(self, part: launch.Part) -> str:
        """How a launch ended."""
        about = part.launch.about
        if part.status == "left_out":
            again = f"`labkit train {about['job']} --budget {about['budget']} --seed {about['seed']}`"
            text = f"left out, because the tour has taken too long: {again} runs it"
        elif part.status == "done" and part.run is not None:
            text = _result_text(runs.read_run(self._runs_dir / part.run).result)
        else:
            text = {"stopped": "stopped", "waiting": f"is tried again: {part.reason}"}.get(part.status)
        return f"{self.name_of(part)}: {text or f'failed: {part.reason}'}"


def _result_text(result: Mapping[str, Any] | None) -> str:
    """Whether a run reached its target, its first metric on the test split, and its speed."""
    assert result is not None  # of a run that is done
    reached, rate = result.get("time_to_target_s"), result.get("samples_per_s")
    missed = "target not reached: " * (result.get("target_reached") is False)
    parts = [f"target after {reached:.1f} s" if reached is not None else f"{missed}{result['reason']}"]
    parts += [f"test {name} {value:.4f}" for name, value in list(result.get("metrics", {}).items())[:1]]
    return ", ".join(parts + ([f"{rate:,.0f} samples/s"] if rate else []))


class SweepDisplay(TourDisplay):
    """The same with the number of each cell, and the time to go."""

    def __init__(self, console: Console, progress: launch.Progress, runs_dir: Path):
        super().__init__(console, runs_dir, evaluations=False)
        self._progress = progress
        self._names = {cell.key: progress.sweep.words(cell) or progress.sweep.job for cell in progress.sweep.cells}

    def name_of(self, part: launch.Part) -> str:
        return self._names[part.name]

    def line_of(self, part: launch.Part) -> str:
        ended, cells = self._progress.count("done", "failed"), len(self._names)
        left = _time_left(self._progress) if self._progress.count("waiting") else ""
        return f"{ended:>{len(str(cells))}}/{cells}  {super().line_of(part)}{left and f'; {left} to go'}"


def run_show(args: argparse.Namespace) -> None:
    for flag, path in (("--csv", args.csv), ("--html", args.html)):
        if path is not None and not path.absolute().parent.is_dir():
            raise UserError(f"{flag} {path}: there is no folder {path.parent}: make it, or name another.")
    frame = launch.read_sweep(args.sweep, args.runs_dir)
    settings = list(frame.columns[: frame.columns.get_loc(launch.OF_A_CELL[0])])
    console = Console(stderr=args.json)
    print_frame(console, _shown(frame, settings))
    for failed in frame[frame["state"] == "failed"].to_dict("records"):
        cell = ", ".join(f"{name} {failed[name]}" for name in settings if failed[name] == failed[name])
        console.print_line(f"{cell or 'a cell'}: {failed['error']}")
    if args.csv is not None:
        frame.to_csv(args.csv, index=False)
        console.print_line(f"The table: {args.csv}")
    if args.html is not None or args.x or args.y or args.color:
        _draw(args, frame, settings, console)
    if args.json:
        print_json(json_rows(frame))


def _shown(frame: pd.DataFrame, settings: list[str]) -> pd.DataFrame:
    """The columns that a reader looks for first: what varies, and what is known of the results."""
    varies = [name for name in ("budget", "seed", "repeat") if frame[name].nunique() > 1]
    results = ["samples_per_s", "time_to_target_s", "cost_usd", *_script_columns(frame, settings), "disturbed"]
    known = [name for name in results if (frame[name].notna() & (frame[name] != "")).any()]
    in_short = frame.assign(disturbed=["yes" if isinstance(by, str) and by else "" for by in frame["disturbed"]])
    return in_short[[*settings, *varies, "state", *known[:MOST_RESULTS]]]


def _script_columns(frame: pd.DataFrame, settings: list[str]) -> list[str]:
    """The columns of what scripts evaluated, logged and tested."""
    return list(frame.columns[len(settings) + len(launch.OF_A_CELL + launch.OF_ITS_RUN + launch.OF_ITS_TARGET) :])


def _draw(args: argparse.Namespace, frame: pd.DataFrame, settings: list[str], console: Console) -> None:
    counts = {name: frame[name].nunique() for name in [*settings, "budget", "seed"]}
    x = args.x or max((name for name in counts if name != args.color), key=counts.__getitem__)
    others = [name for name in counts if name not in (x, "seed") and 1 < counts[name] <= MOST_LINES]
    color = args.color or next(iter(others), None)
    numbers = [name for name in ("samples_per_s", *_script_columns(frame, settings)) if frame[name].notna().any()]
    figure = plots.figure_sweep(frame, x, args.y or next(iter(numbers), "samples_per_s"), color)
    console.print_line(plots.describe(figure).text)
    if args.html is not None:
        runs.replace_text(args.html, plots.page_of(figure, f"Sweep {args.sweep}"))
        console.print_line(f"The figure: {args.html}")


def run_tour(args: argparse.Namespace) -> int:
    console = Console()
    tour = launch.plan_tour(args.jobs, args.seeds, args.runs_dir)
    console.print(
        f"{len(tour)} runs, one after another: {', '.join(args.jobs)} × budgets × seeds. Ctrl-C keeps what is done."
    )
    with tracking.StopRequest() as stop, TourDisplay(console, args.runs_dir) as display:
        launches = launch.run_tour(tour, args.runs_dir, display.show_part, stop)
    folders = [launches.runs_dir / part.run for part in launches.parts.values() if part.run is not None]
    if folders:
        table = tta.run_table(folders)
        results = tta.summary(tta.curves(folders, runs=table), table)
        for title, frame in report.terminal_frames(results):
            print_frame(console, frame, title)
        for line in [*report.notes(results), *(report.headline(job) for _, job in results.groupby("job", sort=False))]:
            console.print(line)
        page = report.write_report(folders, args.out)
        console.print_line(f"The plots: {page}")
    for part in launches.parts.values():
        if part.status == "stopped" and part.run is not None:
            folder = launches.runs_dir / part.run
            console.print_line(f"Go on with: labkit train {part.launch.label} --resume {folder}")
    return exit_status(launches)


def exit_status(tour: launch.Launches) -> int:
    """0 when every run reached its target, 130 when stopped, 2 when the user can fix all that failed, else 1."""
    parts = tour.parts.values()
    if any(part.status in ("stopped", "waiting") for part in parts):
        return 130
    failed = [part for part in parts if part.status in ("failed", "out_of_memory")]
    if failed and all(part.more.get("refused") for part in failed):
        return 2
    records = [tour.record_of(part) for part in parts]
    return 0 if all(record and record.result and record.result["target_reached"] for record in records) else 1

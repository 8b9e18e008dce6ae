"""What `labkit collocate` prints before a plan starts and after it has ended."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table
from rich.text import Text

from labkit.cli.console import Console, print_last
from labkit.errors import UserError
from labkit.hardware.sizes import size_text
from labkit.runs.notes import note_left_out

if TYPE_CHECKING:
    import pandas as pd

    from labkit.collocation.plan.plan import Plan
    from labkit.collocation.plan_check import PlanCheck
    from labkit.collocation.verdict.verdict import Verdict

LEGEND = (
    "Gain: work done together, of that one after another (weighted speed-up). Slowdown: a job's time for its steps, of "
    "that alone in the same repeat; mean and worst (of mode alone: of the median, which shows how much the machine "
    "itself varies). Fairness: Jain's index of the jobs' speeds, 1 being even."
)
ENDED_BADLY = 1
"""Exit status where a job of the group or queue failed"""


def print_check(console: Console, plan: Plan, found: PlanCheck) -> None:
    """Print the table before the start: a row a job, with what it would have and need, or what is against it."""
    table = Table(box=box.SIMPLE, title=f"{plan.name}: before the start", title_justify="left")
    for title in ("mode", "job", "needs", "free", "may have"):
        table.add_column(title, justify="right" if title in ("needs", "free") else "left", no_wrap=title != "may have")
    before = None
    for row in found.rows:
        first = (row.workload, row.mode) != before
        before = (row.workload, row.mode)
        table.add_row(
            row.mode if first else "",
            row.job,
            "unknown" if row.needs_bytes is None else size_text(row.needs_bytes),
            "" if row.free_bytes is None else size_text(row.free_bytes),
            Text("; ".join(row.why_not), "red") if row.why_not else row.device,
        )
    console.print(table)
    needs = "Needs: measured over a job's first steps, or as the plan gives it."
    console.print(f"{needs} Each round runs {plan.repeats} time{'s' * (plan.repeats > 1)}.", soft_wrap=True)
    for warning in found.warnings:
        console.print(warning, style="yellow", soft_wrap=True)


def print_groups(runs_dir: Path, *, as_json: bool) -> None:
    """Print a row a group."""
    from labkit.collocation.launching.group_record import GroupRecord, read_group

    groups = []
    for folder in GroupRecord.folders(runs_dir):
        try:
            groups.append(read_group(folder))
        except UserError as error:  # of one group, which takes the list from nobody
            note_left_out(folder, str(error))
    if as_json:
        print_last(json.dumps([{"group": each.id, "status": each.status, "plan": each.plan.name} for each in groups]))
        return
    table = Table(box=box.SIMPLE)
    for title in ("group", "status", "rounds", "done"):
        table.add_column(title, no_wrap=title == "group")
    for each in groups:
        done = sum(each_round.status == "done" for each_round in each.rounds)
        table.add_row(each.id, each.status, str(len(each.rounds)), str(done))
    Console(highlight=False).print(table if groups else f"There are no groups in {runs_dir}.")


def print_verdict(folder: Path, *, as_json: bool, stopped: bool = False, undisturbed: bool = False) -> int:
    """Print what a group came to; the command's exit status."""
    from labkit.collocation.launching.group_record import read_group
    from labkit.collocation.verdict.advice import advise
    from labkit.collocation.verdict.attribution import attribution, not_attributed
    from labkit.collocation.verdict.verdict import disturbed_rounds, verdict

    record, found = read_group(folder), verdict(folder, undisturbed=undisturbed)
    if undisturbed and found.jobs.empty:
        raise UserError(f"{folder}: other programs disturbed every round, so none is left to judge.")
    advice = advise(found)
    broken = [job for each in record.rounds for job in each.jobs if job.status not in ("done", "waiting", "running")]
    status = 130 if stopped else ENDED_BADLY if broken else 0
    if as_json:
        content = {
            "group": record.id,
            "folder": str(folder),
            "status": record.status,
            "modes": json_rows(found.modes),
            "slowdowns": json_rows(found.slowdowns),
            "time_to_accuracy": json_rows(found.time_to_accuracy),
            "advice": [vars(each) for each in advice],
            "jobs": [
                {"mode": each.mode, "repeat": each.repeat, **asdict(job)} for each in record.rounds for job in each.jobs
            ],
        }
        print_last(json.dumps(content))
        return status
    console = Console(highlight=False)
    # a job alone is in the tables of its mixes
    mixes = found.modes.loc[(found.modes["jobs"] > 1) | (found.modes["mode"] != "alone"), "mix"].unique()
    for mix in mixes:
        _print_mix(console, found, mix)
    if len(mixes):
        console.print(LEGEND, style="dim", soft_wrap=True)
    else:
        _print_alone(console, found.jobs)
    for each in advice:
        console.print(f"Verdict on {each.mix}: {each.reason}", soft_wrap=True)
    for job in broken:
        words = f"{job.job}: {job.status.replace('_', ' ')}: {job.reason}; what it printed: {folder / job.log}"
        console.print(words, style="red", soft_wrap=True)
    if words := not_attributed(attribution(found.jobs)):
        console.print(words, style="dim", soft_wrap=True)
    console.print(f"group {record.id} ({record.status}): {folder}", soft_wrap=True)
    console.print(f"what the jobs printed: {folder / 'logs'}", soft_wrap=True)
    if disturbed := disturbed_rounds(found.jobs):
        rounds = found.jobs["round"].nunique()
        words = f"{len(disturbed)} of {rounds} rounds were disturbed ({next(iter(disturbed.values()))}): "
        words += f"`labkit collocate --show {record.id} --undisturbed` leaves them out."
        console.print(words, style="yellow", soft_wrap=True)
    if record.status in ("stopped", "interrupted"):
        ended = sum(each.status in ("done", "failed") for each in record.rounds)
        console.print(f"{ended} of {len(record.rounds)} rounds have ended; what is said above is of these.")
        console.print(f"go on with: labkit collocate --resume {folder}", soft_wrap=True)
    return status


def _print_mix(console: Console, found: Verdict, mix: str) -> None:
    modes = found.modes[found.modes["mix"] == mix]
    provenance = ", ".join(sorted(set(modes["provenance"])))
    table = Table(box=box.SIMPLE, title=f"{mix}: {provenance}", title_justify="left")
    titles = ("mode", "gain", "slowdown", "worst", "fairness", "makespan", "energy")
    for title in titles:
        table.add_column(title, justify="left" if title == "mode" else "right", no_wrap=title == "mode")
    for row in modes.to_dict("records"):
        energy = _number(row["energy_j"], " J") if math.isfinite(row["energy_j"]) else "unknown"
        table.add_row(
            row["mode"],
            _with_interval(row, "gain"),
            _with_interval(row, "slowdown"),
            _number(row["worst_slowdown"]),
            _number(row["fairness"]),
            _number(row["makespan_s"], " s"),
            energy,
        )
    console.print(table)
    slow = found.slowdowns[(found.slowdowns["mix"] == mix) & (found.slowdowns["mode"] != "alone")]
    times = found.time_to_accuracy[found.time_to_accuracy["mix"] == mix]
    if len(slow) or len(times):
        console.print(_job_table(slow, times))
    notes = modes["energy_note"].dropna().unique()
    if not modes["energy_j"].notna().any() and len(notes):
        console.print(f"Energy: {notes[0]}.", soft_wrap=True)


def _print_alone(console: Console, jobs: pd.DataFrame) -> None:
    """A line a job: there is nothing to compare."""
    for row in jobs.to_dict("records"):
        words = [f"{row['job']} ({row['provenance']}): {row['status'].replace('_', ' ')}"]
        if row["steps"] == 0:
            words.append("no step of an optimiser of torch was seen")
        elif math.isfinite(row["steps_per_s"]):
            words.append(f"{row['steps']:,.0f} steps in {row['wall_s']:.1f} s, {row['steps_per_s']:,.1f} a second")
        if math.isfinite(row["peak_memory_bytes"]):
            words.append(f"{size_text(row['peak_memory_bytes'])} of memory at its peak")
        console.print("; ".join(words), soft_wrap=True)


def _job_table(slow: pd.DataFrame, times: pd.DataFrame) -> Table:
    """Slowdown and time to target, a row a job, a column a mode."""
    modes = list(dict.fromkeys([*times["mode"], *slow["mode"]]))
    table = Table(
        box=box.SIMPLE,
        title="time to target (slowdown)" if len(times) else "slowdown of each job",
        title_justify="left",
    )
    table.add_column("job", no_wrap=True)
    for mode in modes:
        table.add_column(mode, justify="right")
    for job in dict.fromkeys([*slow["job"], *times["job"]]):
        cells = []
        for mode in modes:
            time = times[(times["mode"] == mode) & (times["job"] == job)]
            factor = slow[(slow["mode"] == mode) & (slow["job"] == job)]
            words = [] if time.empty else [_time(time.iloc[0])]
            slowdown = math.nan if factor.empty else factor["slowdown"].iloc[0]
            words += [f"({slowdown:.2f})" if len(times) else f"{slowdown:.2f}"] if math.isfinite(slowdown) else []
            cells.append(" ".join(words))
        table.add_row(job, *cells)
    return table


def _time(row: pd.Series) -> str:
    if math.isfinite(row["median_s"]):
        return f"{row['median_s']:.3g} s"
    return f"not reached in {int(row['rounds'] - row['reached'])} of {int(row['rounds'])}"


def _with_interval(row: dict[str, Any], name: str) -> str:
    if not math.isfinite(row[f"{name}_low"]):
        return _number(row[name])
    return f"{row[name]:.2f}\n{row[f'{name}_low']:.2f} to {row[f'{name}_high']:.2f}"


def _number(value: float, unit: str = "") -> str:
    if value is None or not math.isfinite(value):
        return "-"
    return f"{value:.1f}{unit}" if unit else f"{value:.2f}"


def json_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as JSON: what is no number is null."""
    return json.loads(frame.to_json(orient="records", double_precision=6))

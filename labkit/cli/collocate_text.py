"""What `labkit collocate` prints before a plan starts, while it runs, and after it has ended."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
from rich.text import Text

from labkit.cli.console import Console, print_frame, print_last
from labkit.cli.display import Display
from labkit.errors import UserError
from labkit.hardware import size_text
from labkit.runs import note_left_out
from labkit.sharing import (
    GroupRecord,
    JobEvent,
    Plan,
    PlanCheck,
    RoundEvent,
    Verdict,
    advise,
    disturbed_rounds,
    not_attributed,
    verdict,
)
from labkit.tracking import read_event

LEGEND = (
    "Gain: work done together, of that one after another (weighted speed-up). Slowdown: a job's time for its steps, of "
    "that alone in the same repeat; mean and worst (of mode alone: of the median, which shows how much the machine "
    "itself varies). Fairness: Jain's index of the jobs' speeds, 1 being even."
)
ENDED_BADLY = 1
"""Exit status where a job of the group or queue failed"""


def print_check(console: Console, plan: Plan, found: PlanCheck) -> None:
    """Print the table before the start: a row a job, with what it would have and need, or what is against it."""
    rows = [
        {
            "mode": row.mode,
            "job": row.job,
            "needs": "unknown" if row.needs_bytes is None else size_text(row.needs_bytes),
            "free": "" if row.free_bytes is None else size_text(row.free_bytes),
            "may have": Text("; ".join(row.why_not), "red") if row.why_not else row.device,
        }
        for row in found.rows
    ]
    if rows:
        print_frame(console, rows, f"{plan.name}: before the start")
    needs = "Needs: measured over a job's first steps, or as the plan gives it."
    console.print(f"{needs} Each round runs {plan.repeats} time{'s' * (plan.repeats > 1)}.", soft_wrap=True)
    for warning in found.warnings:
        console.print(warning, style="yellow", soft_wrap=True)


class GroupDisplay(Display):
    """The rounds of a plan, and on a terminal each job of the one under way."""

    def __init__(self, console: Console):
        super().__init__(console, evaluations=False)

    def show(self, event: JobEvent | RoundEvent) -> None:
        """Take an event of `run_plan`."""
        if isinstance(event, RoundEvent):
            self.begin(event.words)
            if event.record.ended_at is not None or not self.console.is_terminal:
                self.print(event.words)
        elif event.event["kind"] == "Over":
            self.says(event.job, event.event["status"].replace("_", " "))
        elif event.event["kind"] not in ("Go", "Ended", "Failed"):
            super().show(read_event(event.event), event.job)


def print_groups(runs_dir: Path, *, as_json: bool) -> None:
    """Print a row a group."""
    rows = []
    for folder in GroupRecord.folders(runs_dir):
        try:
            group = GroupRecord.read(folder)
        except UserError as error:  # of one group, which takes the list from nobody
            note_left_out(folder, str(error))
            continue
        done = sum(each.status == "done" for each in group.rounds)
        named = {"group": group.id, "status": group.status, "plan": group.plan.name}
        rows.append(named | {"rounds": len(group.rounds), "done": done})
    if as_json:
        print_last(json.dumps(rows))
    elif rows:
        print_frame(Console(highlight=False), rows)
    else:
        Console(highlight=False).print(f"There are no groups in {runs_dir}.")


def print_verdict(folder: Path, *, as_json: bool, stopped: bool = False, undisturbed: bool = False) -> int:
    """Print what a group came to; the command's exit status."""
    record, found = GroupRecord.read(folder), verdict(folder, undisturbed=undisturbed)
    if undisturbed and found.jobs.empty:
        raise UserError(f"{folder}: other programs disturbed every round, so none is left to judge.")
    advice = advise(found)
    broken = [job for each in record.rounds for job in each.jobs if job.status not in ("done", "waiting", "running")]
    status = 130 if stopped else ENDED_BADLY if broken else 0
    if as_json:
        jobs = [
            {"mode": each.mode, "repeat": each.repeat, **asdict(job)} for each in record.rounds for job in each.jobs
        ]
        frames = {name: json_rows(getattr(found, name)) for name in ("modes", "slowdowns", "time_to_accuracy")}
        content = {"group": record.id, "folder": str(folder), "status": record.status, "jobs": jobs}
        print_last(json.dumps(content | frames | {"advice": [vars(each) for each in advice]}))
        return status
    console = Console(highlight=False)
    # a job alone is in the tables of its mixes
    mixes = found.modes.loc[(found.modes["jobs"] > 1) | (found.modes["mode"] != "alone"), "mix"].unique()
    for mix in mixes:
        _print_mix(console, found, mix)
    lines = [(LEGEND, "dim")] if len(mixes) else [(_job_alone(row), "") for row in found.jobs.to_dict("records")]
    lines += [(f"Verdict on {each.mix}: {each.reason}", "") for each in advice]
    for job in broken:
        ended = f"{job.job}: {job.status.replace('_', ' ')}: {job.reason}"
        lines.append((f"{ended}; what it printed: {folder / job.log}", "red"))
    lines.append((not_attributed(found.jobs), "dim"))
    lines.append((f"group {record.id} ({record.status}): {folder}\nwhat the jobs printed: {folder / 'logs'}", ""))
    if disturbed := disturbed_rounds(found.jobs):
        words = f"{len(disturbed)} of {found.jobs['round'].nunique()} rounds were disturbed "
        words += f"({next(iter(disturbed.values()))}): `labkit collocate --show {record.id} --undisturbed` "
        lines.append((f"{words}leaves them out.", "yellow"))
    if record.status in ("stopped", "interrupted"):
        ended = sum(each.status in ("done", "failed") for each in record.rounds)
        words = f"{ended} of {len(record.rounds)} rounds have ended; what is said above is of these."
        lines.append((f"{words}\ngo on with: labkit collocate --resume {folder}", ""))
    for words, style in lines:
        if words:
            console.print(words, style=style, soft_wrap=True)
    return status


def _print_mix(console: Console, found: Verdict, mix: str) -> None:
    modes, slow, times = (
        frame[frame["mix"] == mix] for frame in (found.modes, found.slowdowns, found.time_to_accuracy)
    )
    shown = {
        "mode": modes["mode"],
        "gain": _intervals(modes, "gain"),
        "slowdown": _intervals(modes, "slowdown"),
        "worst": modes["worst_slowdown"],
        "fairness": modes["fairness"],
        "makespan (s)": modes["makespan_s"].round(1),
        "energy (J)": modes["energy_j"].round(1),
    }
    print_frame(console, pd.DataFrame(shown), f"{mix}: {', '.join(sorted(set(modes['provenance'])))}")
    times = times.assign(median_s=[_time(row) for row in times.to_dict("records")])
    for title, frame, value in (
        ("slowdown of each job", slow[slow["mode"] != "alone"], "slowdown"),
        ("time to target", times, "median_s"),
    ):
        if len(frame):
            cells = frame.pivot(index="job", columns="mode", values=value)
            order = {"index": frame["job"].unique(), "columns": frame["mode"].unique()}
            print_frame(console, cells.reindex(**order).reset_index(), title)
    notes = modes["energy_note"].dropna().unique()
    if modes["energy_j"].isna().all() and len(notes):
        console.print(f"Energy: {notes[0]}.", soft_wrap=True)


def _job_alone(row: dict[str, Any]) -> str:
    words = [f"{row['job']} ({row['provenance']}): {row['status'].replace('_', ' ')}"]
    if row["steps"] == 0:
        words.append("no step of an optimiser of torch was seen")
    elif math.isfinite(row["steps_per_s"]):
        words.append(f"{row['steps']:,.0f} steps in {row['wall_s']:.1f} s, {row['steps_per_s']:,.1f} a second")
    if math.isfinite(row["peak_memory_bytes"]):
        words.append(f"{size_text(row['peak_memory_bytes'])} of memory at its peak")
    return "; ".join(words)


def _time(row: dict[str, Any]) -> str:
    if math.isfinite(row["median_s"]):
        return f"{row['median_s']:.3g} s"
    return f"not reached in {row['rounds'] - row['reached']:.0f} of {row['rounds']:.0f}"


def _intervals(modes: pd.DataFrame, name: str) -> list[str]:
    told = []
    for value, low, high in modes[[name, f"{name}_low", f"{name}_high"]].itertuples(index=False):
        interval = f" ({low:.2f} to {high:.2f})" if math.isfinite(low) else ""
        told.append(f"{value:.2f}{interval}" if math.isfinite(value) else "-")
    return told


def json_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as JSON: what is no number is null."""
    return json.loads(frame.to_json(orient="records", double_precision=6))

"""What `labkit collocate` prints before a plan starts and after it has ended."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from labkit.cli.console import Console, print_frame, print_last
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
    import pandas as pd

    rows = [
        (
            row.mode,
            row.job,
            "unknown" if row.needs_bytes is None else size_text(row.needs_bytes),
            "" if row.free_bytes is None else size_text(row.free_bytes),
            Text("; ".join(row.why_not), "red") if row.why_not else row.device,
        )
        for row in found.rows
    ]
    if rows:
        frame = pd.DataFrame(rows, columns=["mode", "job", "needs", "free", "may have"])
        print_frame(console, frame, f"{plan.name}: before the start")
    needs = "Needs: measured over a job's first steps, or as the plan gives it."
    console.print(f"{needs} Each round runs {plan.repeats} time{'s' * (plan.repeats > 1)}.", soft_wrap=True)
    for warning in found.warnings:
        console.print(warning, style="yellow", soft_wrap=True)


def print_groups(runs_dir: Path, *, as_json: bool) -> None:
    """Print a row a group."""
    import pandas as pd

    from labkit.collocation.launching.jobs_record import GroupRecord

    rows = []
    for folder in GroupRecord.folders(runs_dir):
        try:
            group = GroupRecord.read(folder)
        except UserError as error:  # of one group, which takes the list from nobody
            note_left_out(folder, str(error))
            continue
        done = sum(each.status == "done" for each in group.rounds)
        rows.append((group.id, group.status, group.plan.name, len(group.rounds), done))
    frame = pd.DataFrame(rows, columns=["group", "status", "plan", "rounds", "done"])
    if as_json:
        print_last(frame.to_json(orient="records"))
    elif rows:
        print_frame(Console(highlight=False), frame)
    else:
        Console(highlight=False).print(f"There are no groups in {runs_dir}.")


def print_verdict(folder: Path, *, as_json: bool, stopped: bool = False, undisturbed: bool = False) -> int:
    """Print what a group came to; the command's exit status."""
    from labkit.collocation.launching.jobs_record import GroupRecord
    from labkit.collocation.verdict.advice import advise, not_attributed
    from labkit.collocation.verdict.verdict import disturbed_rounds, verdict

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

    def say(words: str, style: str | None = None) -> None:
        if words:
            console.print(words, style=style, soft_wrap=True)

    # a job alone is in the tables of its mixes
    mixes = found.modes.loc[(found.modes["jobs"] > 1) | (found.modes["mode"] != "alone"), "mix"].unique()
    for mix in mixes:
        _print_mix(console, found, mix)
    for words in [LEGEND] if len(mixes) else map(_job_alone, found.jobs.to_dict("records")):
        say(words, "dim" if len(mixes) else None)
    for each in advice:
        say(f"Verdict on {each.mix}: {each.reason}")
    for job in broken:
        say(f"{job.job}: {job.status.replace('_', ' ')}: {job.reason}; what it printed: {folder / job.log}", "red")
    say(not_attributed(found.jobs), "dim")
    say(f"group {record.id} ({record.status}): {folder}")
    say(f"what the jobs printed: {folder / 'logs'}")
    if disturbed := disturbed_rounds(found.jobs):
        words = f"{len(disturbed)} of {found.jobs['round'].nunique()} rounds were disturbed "
        words += f"({next(iter(disturbed.values()))}): `labkit collocate --show {record.id} --undisturbed` "
        say(f"{words}leaves them out.", "yellow")
    if record.status in ("stopped", "interrupted"):
        ended = sum(each.status in ("done", "failed") for each in record.rounds)
        say(f"{ended} of {len(record.rounds)} rounds have ended; what is said above is of these.")
        say(f"go on with: labkit collocate --resume {folder}")
    return status


def _print_mix(console: Console, found: Verdict, mix: str) -> None:
    import pandas as pd

    modes = found.modes[found.modes["mix"] == mix]
    rows = modes.to_dict("records")
    columns = {name: [_interval(row, name) for row in rows] for name in ("gain", "slowdown")}
    columns |= {"worst": [_text(row["worst_slowdown"]) for row in rows]}
    columns |= {"fairness": [_text(row["fairness"]) for row in rows]}
    columns |= {"makespan": [_text(row["makespan_s"], " s") for row in rows]}
    columns |= {"energy": [_text(row["energy_j"], " J", "unknown") for row in rows]}
    title = f"{mix}: {', '.join(sorted(set(modes['provenance'])))}"
    print_frame(console, pd.DataFrame({"mode": list(modes["mode"])} | columns), title)

    slow = found.slowdowns[(found.slowdowns["mix"] == mix) & (found.slowdowns["mode"] != "alone")]
    times = found.time_to_accuracy[found.time_to_accuracy["mix"] == mix]
    both = times.merge(slow, on=["mode", "job"], how="outer", sort=False)
    if len(both):
        cells = both.assign(text=[_of_job(row) for row in both.to_dict("records")])
        order = {"index": list(dict.fromkeys([*slow["job"], *times["job"]]))}
        order |= {"columns": list(dict.fromkeys([*times["mode"], *slow["mode"]]))}
        table = cells.pivot(index="job", columns="mode", values="text").reindex(**order).reset_index()
        print_frame(console, table, "time to target (slowdown)" if len(times) else "slowdown of each job")
    notes = modes["energy_note"].dropna().unique()
    if not modes["energy_j"].notna().any() and len(notes):
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


def _of_job(row: dict[str, Any]) -> str:
    """Time to target and slowdown, of which each may be missing."""
    slowdown = f"{row['slowdown']:.2f}" if math.isfinite(row["slowdown"]) else ""
    if math.isnan(row["rounds"]):
        return slowdown
    time = f"{row['median_s']:.3g} s"
    if not math.isfinite(row["median_s"]):
        time = f"not reached in {row['rounds'] - row['reached']:.0f} of {row['rounds']:.0f}"
    return f"{time} ({slowdown})" if slowdown else time


def _interval(row: dict[str, Any], name: str) -> str:
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return f"{_text(row[name])} ({low:.2f} to {high:.2f})" if math.isfinite(low) else _text(row[name])


def _text(value: float, unit: str = "", unknown: str = "-") -> str:
    if not math.isfinite(value):
        return unknown
    return f"{value:.1f}{unit}" if unit else f"{value:.2f}"


def json_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as JSON: what is no number is null."""
    return json.loads(frame.to_json(orient="records", double_precision=6))

"""What `labkit pack` prints before a queue starts and after it has ended."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.table import Table
from rich.text import Text

from labkit.cli.collocate_text import ENDED_BADLY, json_rows
from labkit.cli.console import Console, marked, print_last
from labkit.hardware.sizes import size_text

if TYPE_CHECKING:
    import pandas as pd

    from labkit.collocation.packing.device_state import PackingDevice
    from labkit.collocation.packing.live_device import LiveDevice
    from labkit.collocation.packing.queue_check import QueueCheck
    from labkit.collocation.packing.queue_record import QueueRecord
    from labkit.collocation.packing.recorded_profiles import RecordedProfiles
    from labkit.collocation.packing.report import PackReport
    from labkit.collocation.packing.schedule import Schedule

LEGEND = (
    "Makespan: from the first arrival to the last end. Completion and wait: means over the jobs that are done. "
    "Slowdown: a job's time over that alone, as its profile has it. OOM: attempts that ran out of memory. In brackets: "
    "times that of the first such row."
)


def print_queue_check(console: Console, found: QueueCheck, live: Sequence[LiveDevice]) -> None:
    """Print the table before the start: a row a job, with what it needs and where it fits, or what is against it."""
    table = Table(box=box.SIMPLE, title="before the start", title_justify="left")
    for title in ("job", "comes", "needs", "busy", "fits on"):
        table.add_column(
            title, justify="right" if title in ("comes", "needs", "busy") else "left", no_wrap=title == "job"
        )
    for row in found.rows:
        profile = row.queued.profile
        known = profile is not None and not row.why_not
        table.add_row(
            row.queued.name,
            f"{row.queued.arrives_s:g} s",
            size_text(profile.memory_estimate_bytes) if profile else "unknown",
            f"{profile.utilisation:.0%}" if profile else "",
            ", ".join(row.fits) if known else Text("; ".join(row.why_not), "red"),
        )
    console.print(table)
    for each in live:
        free = size_text(each.packing.memory_bytes)
        console.print(f"{each.packing.name}: {each.share.device}; {free} are free for the queue", soft_wrap=True)
    sources = "; ".join(dict.fromkeys(f"needs by {row.memory_from}" for row in found.rows if row.memory_from))
    busy = "; ".join(dict.fromkeys(f"busy {row.busy_from}" for row in found.rows if row.busy_from))
    console.print(f"{sources}; {busy}", style="dim", soft_wrap=True)


def print_simulated(
    report: PackReport,
    recorded: RecordedProfiles,
    *,
    interference: str,
    devices: Sequence[PackingDevice],
    as_json: bool,
) -> int:
    """Print policies side by side as predicted; the command's exit status."""
    if as_json:
        print_last(json.dumps({"provenance": "predicted", "policies": json_rows(report.totals)}))
        return 0
    console = Console(highlight=False)
    jobs = int(report.totals["jobs"].iloc[0])
    title = f"{jobs} jobs on {len(devices)} devices of {size_text(devices[0].memory_bytes)}: predicted from recorded "
    totals = report.totals
    console.print(_totals_table(totals, f"{title}profiles"))
    console.print(LEGEND, style="dim", soft_wrap=True)
    console.print(f"Slowdowns by {interference}; profiles recorded {recorded.provenance.when[:10]}.", soft_wrap=True)
    _print_energy(console, totals)
    _print_carma(console, totals)
    return 0


def print_queues(
    records: Sequence[tuple[Path, QueueRecord]], exclusive: Schedule | None, *, as_json: bool, stopped: bool
) -> int:
    """Print what queues that ran came to; the command's exit status.

    Args:
        records: folder and record of each, exclusive first where it was run.
        exclusive: what is predicted for exclusive, where they can be.
        as_json: as one JSON object on the last line.
        stopped: whether the user ended it.
    """
    from labkit.collocation.packing.schedule import measured_schedule, side_by_side

    schedules = [measured_schedule(record) for _, record in records]
    frame = side_by_side(schedules if exclusive is None else [*schedules, exclusive])
    broken = [job for _, record in records for job in record.jobs if job.status == "failed"]
    status = 130 if stopped else ENDED_BADLY if broken else 0
    times = [row for folder, record in records for row in _times_to_target(folder, record)]
    if as_json:
        queues = [{"queue": record.id, "folder": str(folder), "status": record.status} for folder, record in records]
        print_last(json.dumps({"queues": queues, "policies": json_rows(frame), "time_to_accuracy": times}))
        return status
    console = Console(highlight=False)
    console.print(_totals_table(frame, f"{len(records[0][1].jobs)} jobs: {' and '.join(frame['provenance'].unique())}"))
    console.print(LEGEND, style="dim", soft_wrap=True)
    _print_energy(console, frame[frame["provenance"] == "measured"])
    if len(records) > 1:
        _print_carma(console, frame[frame["provenance"] == "measured"])
    if times:
        console.print(_times_table(times))
    for _, record in records:
        _print_failures(console, record)
    for folder, record in records:
        console.print(f"queue {record.id} ({record.status}): {folder}", soft_wrap=True)
        console.print(f"what the jobs printed: {folder / 'logs'}", soft_wrap=True)
        if record.status in ("stopped", "failed"):
            console.print(f"go on with: labkit pack --resume {folder}", soft_wrap=True)
    return status


def _times_to_target(folder: Path, record: QueueRecord) -> list[dict[str, Any]]:
    """The time to target of each job of a queue whose script watches one: policy, job, target, time_to_target_s."""
    from labkit.runs.query import list_rows

    job_of = {attempt.run: job.name for job in record.jobs for attempt in job.attempts}
    return [
        {
            "policy": record.policy,
            "job": job_of[row["run"]],
            "target": f"{row['target_metric']} {row['target']:g}",
            "time_to_target_s": row["time_to_target_s"],
        }
        for row in list_rows(folder)
        if row["run"] in job_of and row["target"] is not None
    ]


def _times_table(times: list[dict[str, Any]]) -> Table:
    table = Table(box=box.SIMPLE, title="Time to target, measured", title_justify="left")
    for name in ("policy", "job", "target", "reached after (s)"):
        table.add_column(name, justify="right" if name.endswith("(s)") else "left")
    for row in times:
        seconds = row["time_to_target_s"]
        table.add_row(row["policy"], row["job"], row["target"], "not reached" if seconds is None else f"{seconds:.1f}")
    return table


def _print_failures(console: Console, record: QueueRecord) -> None:
    for job in record.jobs:
        for number, attempt in enumerate(job.attempts, 1):
            if attempt.ending not in ("done", None):
                of = f" in attempt {number} of {len(job.attempts)}" if len(job.attempts) > 1 else ""
                again = ", then it ran alone" if attempt.ending == "out of memory" and job.status == "done" else ""
                head = marked("[red]{}: {}[/red]{}", job.name, attempt.ending, f"{of}{again}: {attempt.reason}")
                console.print(head, soft_wrap=True)


def _totals_table(frame: pd.DataFrame, title: str) -> Table:
    table = Table(box=box.SIMPLE, title=title, title_justify="left")
    several = frame["provenance"].nunique() > 1
    columns = {
        "policy": lambda row: row["policy"] + (f", {row['provenance']}" if several else ""),
        "makespan (s)": lambda row: _beside(row, "makespan", "s"),
        "completion (s)": lambda row: _beside(row, "mean_completion", "s"),
        "wait (s)": lambda row: _number(row["mean_wait_s"], 1),
        "slowdown": lambda row: _number(row["mean_slowdown"]),
        "OOM": lambda row: str(int(row["ooms"])),
    }
    if (frame["done"] < frame["jobs"]).any():
        columns["done"] = lambda row: str(int(row["done"]))
    if frame["energy_j"].notna().any():
        columns["energy (J)"] = lambda row: _beside(row, "energy", "j")
    for column in columns:
        table.add_column(column, justify="left" if column == "policy" else "right", no_wrap=True)
    for row in frame.to_dict("records"):
        table.add_row(*(cell(row) for cell in columns.values()))
    return table


def _print_energy(console: Console, frame: pd.DataFrame) -> None:
    notes = [note for note in frame["energy_note"].dropna().unique() if note]
    if frame["energy_j"].isna().any() and notes:
        console.print(f"Energy is unknown: {notes[0]}.", soft_wrap=True)
    elif notes:
        console.print(f"Energy: {notes[0]}.", soft_wrap=True)


def _print_carma(console: Console, frame: pd.DataFrame) -> None:
    from labkit.collocation.packing.report import CARMA_ENERGY, CARMA_MAKESPAN

    others = frame[frame["policy"] != "exclusive"]
    if others.empty:
        return
    best = others.loc[others["makespan_ratio"].idxmin()]
    here = f"{best['policy']} {best['makespan_ratio'] - 1:+.0%} makespan"
    if math.isfinite(best["energy_ratio"]):
        here += f", {best['energy_ratio'] - 1:+.0%} energy"
    console.print(
        f"Against exclusive: {here} ({best['provenance']} here); CARMA "
        f"{CARMA_MAKESPAN - 1:+.0%} makespan and {CARMA_ENERGY - 1:+.0%} energy (arXiv 2508.19073: its own jobs, on "
        "GPUs).",
        soft_wrap=True,
    )


def _beside(row: dict[str, Any], name: str, unit: str) -> str:
    value, ratio = row[f"{name}_{unit}"], row[f"{name}_ratio"]
    if not math.isfinite(value):
        return "unknown"
    return f"{value:.1f} ({ratio:.2f})"


def _number(value: float, decimals: int = 2) -> str:
    return f"{value:.{decimals}f}" if math.isfinite(value) else "-"

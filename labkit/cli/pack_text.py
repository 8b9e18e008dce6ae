"""What `labkit pack` prints before a queue starts, and after it has ended."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from rich.text import Text

from labkit.cli.collocate_text import ENDED_BADLY, json_rows
from labkit.cli.console import Console, marked, print_frame, print_last
from labkit.hardware import size_text
from labkit.sharing import CheckedQueueJob, LiveDevice, QueueRecord, side_by_side

LEGEND = (
    "Makespan: from the first arrival to the last end. Completion and wait: means over the jobs that are done. "
    "Slowdown: a job's time over that alone, under exclusive or as the queue has it. OOM: attempts that ran out of "
    "memory. In brackets: times that of the first row."
)


def print_queue_check(console: Console, checked: Sequence[CheckedQueueJob], live: Sequence[LiveDevice]) -> None:
    """Print the table before the start: a row a job, with what it needs and where it fits, or what is against it."""
    rows = []
    for row in checked:
        profile = row.queued.profile
        rows.append(
            {
                "job": row.queued.name,
                "comes": f"{row.queued.arrives_s:g} s",
                "needs": size_text(profile.memory_estimate_bytes) if profile else "",
                "busy": f"{profile.utilisation:.0%}" if profile else "",
                "fits on": Text("; ".join(row.why_not), "red") if row.why_not else ", ".join(row.fits),
            }
        )
    print_frame(console, rows, "before the start")
    for each in live:
        free = size_text(each.packing.memory_bytes)
        console.print(f"{each.packing.name}: {each.share.device}; {free} are free for the queue", soft_wrap=True)
    console.print("; ".join(dict.fromkeys(row.source for row in checked)), style="dim", soft_wrap=True)


def print_queues(records: Sequence[tuple[Path, QueueRecord]], *, as_json: bool, stopped: bool) -> int:
    """Print what queues that ran came to, exclusive first where it was run; the command's exit status."""
    totals = side_by_side([record.schedule for _, record in records])
    status = 130 if stopped else ENDED_BADLY if (totals["failed"] > 0).any() else 0
    if as_json:
        queues = [{"queue": record.id, "folder": str(folder), "status": record.status} for folder, record in records]
        print_last(json.dumps({"queues": queues, "policies": json_rows(totals)}))
        return status
    console = Console(highlight=False)
    print_totals(console, totals, f"{len(records[0][1].jobs)} jobs: measured")
    for folder, record in records:
        for job in record.jobs:
            for attempt in job.attempts:
                if attempt.ending not in ("done", None):
                    again = ", then it ran alone" if attempt is not job.attempts[-1] else ""
                    head = marked("[red]{}: {}[/red]{}: {}", job.name, attempt.ending, again, attempt.reason)
                    console.print(head, soft_wrap=True)
        console.print(f"queue {record.id} ({record.status}): {folder}", soft_wrap=True)
        console.print(f"what the jobs printed: {folder / 'logs'}", soft_wrap=True)
    return status


def print_totals(console: Console, totals: pd.DataFrame, title: str) -> None:
    """Print policies side by side (`labkit.sharing.packing.scheduler.side_by_side`)."""
    shown = {
        "policy": totals["policy"],
        "makespan (s)": _beside(totals, "makespan", "s"),
        "completion (s)": _beside(totals, "mean_completion", "s"),
        "wait (s)": totals["mean_wait_s"].round(1),
        "slowdown": totals["mean_slowdown"].round(2),
        "OOM": totals["ooms"],
        "done": totals["done"],
        "energy (J)": _beside(totals, "energy", "j"),
    }
    print_frame(console, pd.DataFrame(shown), title)
    console.print(LEGEND, style="dim", soft_wrap=True)
    unknown = " is unknown" if totals["energy_j"].isna().any() else ""
    console.print(f"Energy{unknown}: {totals['energy_note'].iloc[-1]}.", soft_wrap=True)


def _beside(totals: pd.DataFrame, name: str, unit: str) -> list[str]:
    pairs = zip(totals[f"{name}_{unit}"], totals[f"{name}_ratio"], strict=True)
    return [f"{value:.1f} ({ratio:.2f})" if math.isfinite(value) else "unknown" for value, ratio in pairs]

"""The summary as words: the cells of the page's tables and of the terminal's."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pandas as pd

from labkit.plots.words import count_text, fixed, metric_label, seconds_text, usd_text

if TYPE_CHECKING:
    from rich.table import Table

HEADINGS = (
    "Budget",
    "Provenance",
    "Seeds reached",
    "Time to target, median (range)",
    "Kaplan–Meier median",
    "Samples",
    "Samples/s",
    "Peak memory",
    "Energy",
    "Cost",
)
NO_METRIC = "no metric"
"""Of a script that tells labkit none"""
NO_TARGET = "no target"
JOB_NAMES = {"dlrm": "DLRM", "speech": "Speech recogniser"}


def job_name(job: str) -> str:
    """The job as a title; what follows its first word (" on adult") is kept.

    >>> job_name("dlrm on adult"), job_name("resnet")
    ('DLRM on adult', 'resnet')
    """
    first, space, rest = job.partition(" ")
    return JOB_NAMES.get(first, first) + space + rest


def goal_text(metric: str | None, target: float) -> str:
    """What was to be reached.

    >>> goal_text("auc", 0.78), goal_text(None, math.nan)
    ('AUC 0.78', 'no target')
    """
    return NO_TARGET if math.isnan(target) else f"{metric_label(metric)} {target:.6g}"


def summary_cells(row: pd.Series) -> list[str]:
    """One row of `labkit.tta.summary` as words, under `HEADINGS`."""
    has_target = not math.isnan(row["target"])
    return [
        row["budget"],
        row["provenance"],
        reached_text(int(row["reached"]), int(row["runs"])) if has_target else "–",
        time_text(row["time_median_s"], row["time_min_s"], row["time_max_s"]) if has_target else "–",
        km_text(row["km_median_s"], row["km_low_s"], row["km_high_s"]) if has_target else "–",
        count_text(row["samples_median"]),
        count_text(row["samples_per_s"]),
        memory_text(row["peak_memory_bytes"], row["peak_gpu_memory_bytes"]),
        energy_text(row["energy_j"]),
        cost_text(row["cost_usd"]),
    ]


def reached_text(reached: int, runs: int) -> str:
    return f"{reached} of {runs}"


def time_text(median: float, low: float, high: float) -> str:
    """
    >>> time_text(6.2, 5.9, 6.5), time_text(6.2, 6.2, 6.2)
    ('6.2 s (5.9 s – 6.5 s)', '6.2 s')
    """
    if not math.isfinite(median):
        return "not reached"
    if low == high:
        return seconds_text(median)
    return f"{seconds_text(median)} ({seconds_text(low)} – {seconds_text(high)})"


def km_text(median: float, low: float, high: float) -> str:
    """The median and, where there are runs enough for one, its 95 % interval."""
    if not math.isfinite(median) or math.isnan(low):
        return seconds_text(median)
    upper = seconds_text(high) if math.isfinite(high) else "no bound"
    return f"{seconds_text(median)} (95 % CI {seconds_text(low)} – {upper})"


def memory_text(host_bytes: float, gpu_bytes: float) -> str:
    """
    >>> memory_text(2**30, math.nan), memory_text(2**30, 2**31)
    ('1.00 GiB', '1.00 GiB, GPU 2.00 GiB')
    """
    host = f"{fixed(host_bytes / 2**30, 2)} GiB" if math.isfinite(host_bytes) else "not measured"
    return f"{host}, GPU {fixed(gpu_bytes / 2**30, 2)} GiB" if math.isfinite(gpu_bytes) else host


def energy_text(energy_j: float) -> str:
    if not math.isfinite(energy_j):
        return "not measured"
    return f"{fixed(energy_j, 0)} J" if energy_j < 10_000 else f"{fixed(energy_j / 1000, 1)} kJ"


def cost_text(cost_usd: float) -> str:
    return usd_text(cost_usd) if math.isfinite(cost_usd) else "–"


def notes(summary: pd.DataFrame) -> list[str]:
    """Why cells are empty and what costs rest on: each reason once, with the budgets it is for."""
    lines = []
    for subject, value, note in (("Energy", "energy_j", "energy_note"), ("Cost", "cost_usd", "cost_note")):
        told = summary if subject == "Cost" else summary[summary[value].isna()]
        for reason, rows in told.dropna(subset=[note]).groupby(note, sort=False):
            everywhere = len(rows) == len(summary)
            where = "" if everywhere else f" ({', '.join(dict.fromkeys(rows['budget']))})"
            lines.append(f"{subject}{where}: {reason}.")
    return lines


def terminal_tables(summary: pd.DataFrame) -> list[Table]:
    """The summary as rich tables that fit a terminal of 80 columns: one a job and target, with a row a budget."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    tables = []
    for (job, metric, target), rows in summary.groupby(["job", "metric", "target"], sort=False, dropna=False):
        title = Text(f"{job_name(job)}, {goal_text(metric, target)}", "bold")
        table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, collapse_padding=True)
        table.add_column("Budget")
        table.add_column("Seeds\nreached", justify="right")
        table.add_column("Time to target\nmedian, range", justify="right", no_wrap=True)
        for heading in ("Samples\n/s", "Peak\nmemory", "Energy", "Cost"):
            table.add_column(heading, justify="right", min_width=8 if heading == "Energy" else 7)
        for _, row in rows.iterrows():
            budget, provenance, reached, time, _, _, samples_per_s, memory, energy, cost = summary_cells(row)
            time, memory = time.replace(" (", "\n").rstrip(")"), memory.replace(", ", "\n")
            table.add_row(Text(f"{budget}\n{provenance}"), reached, time, samples_per_s, memory, energy, cost)
        tables.append(table)
    return tables

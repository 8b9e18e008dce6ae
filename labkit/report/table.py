"""The summary as words: the cells of the page's tables and of the terminal's."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from labkit.plots.words import axis_text, count_text, fixed, is_not_known, metric_label

if TYPE_CHECKING:
    from rich.table import Table

HEADINGS = (
    "Budget",
    "Provenance",
    "Reached",
    "Time to target, median",
    "Expected with restarts",
    "Samples",
    "Samples/s",
    "Peak memory",
    "Energy",
    "Cost with restarts",
)
NOT_KNOWN = "not known"
"""Of a median, where too many runs were cut off"""
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
    reached, time, expected, samples, cost = target_cells(row)
    return [
        row["budget"],
        row["provenance"],
        reached,
        time,
        expected,
        samples,
        count_text(row["samples_per_s"]),
        memory_text(row["peak_memory_bytes"], row["peak_gpu_memory_bytes"]),
        energy_text(row["energy_j"]),
        cost,
    ]


def target_cells(row: pd.Series) -> list[str]:
    """The cells of that row that follow the target (`labkit.tta.summary.target_columns`)."""
    if math.isnan(row["target"]):
        return ["–"] * 5
    return [
        reached_text(row),
        NOT_KNOWN
        if is_not_known(row["time_median_s"], row["failed"], row["runs"])
        else time_text(row["time_median_s"], row["time_low_s"], row["time_high_s"], row["time_level"]),
        expected_text(row["expected_s"], row["expected_low_s"], row["expected_high_s"]),
        count_text(row["samples_median"]),
        "–"
        if math.isnan(row["cost_usd"])
        else expected_text(row["cost_usd"], row["cost_low_usd"], row["cost_high_usd"], "cost_usd"),
    ]


def reached_text(row: pd.Series) -> str:
    """How many runs reached the target; the interval of their share, where more than one was run."""
    cut_off = f", {row['censored']:.0f} cut off" if row["censored"] else ""
    share = f" (95 % CI {100 * row['success_low']:.0f} – {100 * row['success_high']:.0f} %)" if row["runs"] > 1 else ""
    return f"{row['reached']:.0f} of {row['runs']:.0f}{cut_off}{share}"


def time_text(median: float, low: float, high: float, level: float = math.nan, x: str = "wall_s") -> str:
    """The median with its interval or, where level is NaN, its range; on the axis x.

    >>> time_text(6.2, 5.9, 6.5), time_text(6.2, 6.2, 6.2), time_text(6.2, 5.9, math.inf, 0.95)
    ('6.2 s (range 5.9 – 6.5 s)', '6.2 s', '6.2 s (95 % CI 5.9 s – no bound)')
    """
    if not math.isfinite(median) or low == high:
        return axis_text(median, x)
    name = "range" if math.isnan(level) else f"{100 * level:.0f} % CI"
    return f"{axis_text(median, x)} ({name} {_ends(low, high, x)})"


def expected_text(expected: float, low: float, high: float, x: str = "wall_s") -> str:
    """
    >>> expected_text(13.0, 9.9, 29.4), expected_text(13.0, math.nan, math.nan), expected_text(math.inf, 0, 0)
    ('13.0 s (95 % CI 9.9 – 29.4 s)', '13.0 s', 'not reached')
    """
    if not math.isfinite(expected) or math.isnan(low):
        return axis_text(expected, x)
    return f"{axis_text(expected, x)} (95 % CI {_ends(low, high, x)})"


def _ends(low: float, high: float, x: str) -> str:
    """Both ends, with their unit once where it is the same."""
    first, last = axis_text(low, x), axis_text(high, x) if math.isfinite(high) else "no bound"
    number, space, unit = first.rpartition(" ")
    return f"{number if space and last.endswith(space + unit) else first} – {last}"


def times_table(times: pd.DataFrame, x: str) -> str:
    """`labkit.tta.survival` on the axis x as a small table in HTML."""
    heads = ("Budget", "Provenance", "Reached", "Median to target", "Expected with restarts")
    rows = [
        (
            row["budget"],
            row["provenance"],
            reached_text(row),
            NOT_KNOWN
            if is_not_known(row["median"], row["failed"], row["runs"])
            else time_text(row["median"], row["low"], row["high"], row["level"], x),
            expected_text(row["expected"], row["expected_low"], row["expected_high"], x),
        )
        for row in times.to_dict("records")
    ]
    html = pd.DataFrame(rows, columns=heads).to_html(index=False, border=0, justify="left")
    # a notebook's own style sets numbers right, without a gap
    return re.sub("<(t[dh])>", r'<\1 style="text-align: left; padding: 2px 20px 2px 0">', html)


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


def notes(summary: pd.DataFrame) -> list[str]:
    """What lines differ in, why cells are empty, what costs rest on: each reason once, with the budgets it is for."""
    lines = [
        f"{job_name(row['job'])}: {row['budget']} differs from the fastest, {_fastest(rows)}, in "
        f"{in_words(row['differs_in'])}, so what comes of which cannot be told."
        for _, rows in summary.groupby("job", sort=False)
        for _, row in rows.iterrows()
        if len(row["differs_in"]) > 1
    ]
    lines += [
        f"{job_name(row['job'])}, {row['budget']}: other programs disturbed {row['disturbed']} of {row['runs']} runs. "
        "`labkit report --undisturbed` leaves them out."
        for row in summary[summary["disturbed"] > 0].to_dict("records")
    ]
    for subject, value, note in (("Energy", "energy_j", "energy_note"), ("Cost", "cost_usd", "cost_note")):
        told = summary if subject == "Cost" else summary[summary[value].isna()]
        for reason, rows in told.dropna(subset=[note]).groupby(note, sort=False):
            everywhere = len(rows) == len(summary)
            where = "" if everywhere else f" ({', '.join(dict.fromkeys(rows['budget']))})"
            lines.append(f"{subject}{where}: {reason}.")
    return lines


def _fastest(rows: pd.DataFrame) -> str:
    return rows["budget"].iloc[int(rows["time_median_s"].to_numpy().argmin())]


def in_words(names: Sequence[str]) -> str:
    """
    >>> in_words(["budget", "batch_size", "precision"])
    'budget, batch_size and precision'
    """
    return " and ".join([*([", ".join(names[:-1])] if len(names) > 1 else []), names[-1]])


def _lines(cell: str) -> list[str]:
    """A cell with its interval in lines of at most 15 characters."""
    value, _, interval = cell.removesuffix(")").partition(" (")
    name, ends = re.fullmatch(r"(\d\d % CI|range|) ?(.*)", interval).groups()
    if len(ends) > 15:
        ends = ends.replace(" – ", " –\n")
    return [line for line in (value, name if name != "95 % CI" else "", ends) if line]


def terminal_tables(summary: pd.DataFrame) -> list[Table]:
    """The summary as rich tables that fit a terminal of 80 columns: one a job and target, with a row a budget."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    tables = []
    for (job, metric, target), rows in summary.groupby(["job", "metric", "target"], sort=False, dropna=False):
        title = Text(f"{job_name(job)}, {goal_text(metric, target)}", "bold")
        table = Table(
            title=title,
            title_justify="left",
            box=box.SIMPLE_HEAD,
            collapse_padding=True,
            pad_edge=False,
        )
        table.add_column("Budget", min_width=12, overflow="fold")
        of_target = ("Reached", "Time to target\nmedian", "Expected\nwith restarts")
        for heading in (*of_target, "Samples/s\nmemory", "Energy\ncost"):
            table.add_column(heading, justify="right", no_wrap=True)
        for _, row in rows.iterrows():
            budget, provenance, *of_target, _, samples_per_s, memory, energy, cost = summary_cells(row)
            known = energy if math.isfinite(row["energy_j"]) else "–"  # the notes say why
            cells = ["\n".join(_lines(cell)) for cell in of_target]
            cells += [f"{samples_per_s}\n{memory.replace(', ', chr(10))}", f"{known}\n{cost.partition(' (')[0]}"]
            table.add_row(Text(f"{budget}\n{provenance}"), *cells)
        tables.append(table)
    return tables

"""The summary as words: the cells of the page's tables and of the terminal's."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import pandas as pd
from markupsafe import Markup, escape

from labkit.jobs import JOBS
from labkit.plots import axis_text, count_text, is_not_known, joules_text, metric_label

HEADINGS = (
    "Budget", "Provenance", "Reached", "Time to target, median", "Expected with restarts", "Samples", "Samples/s",
    "Peak memory", "Energy", "Cost with restarts",
)  # fmt: skip
OF_TARGET = (2, 3, 4, 5, 9)
"""Places of those that follow the target"""
NOT_KNOWN = "not known"
"""Of a median, where too many runs were cut off"""
NO_METRIC = "no metric"
"""Of a script that tells labkit none"""
NO_TARGET = "no target"


def job_name(job: str) -> str:
    """The job as a title; what follows its first word (" on adult") is kept.

    >>> job_name("dlrm on adult"), job_name("resnet")
    ('DLRM on adult', 'resnet')
    """
    first, space, rest = job.partition(" ")
    return (JOBS[first].title if first in JOBS else first) + space + rest


def goal_text(metric: str | None, target: float) -> str:
    """What was to be reached.

    >>> goal_text("auc", 0.78), goal_text(None, math.nan)
    ('AUC 0.78', 'no target')
    """
    return NO_TARGET if math.isnan(target) else f"{metric_label(metric)} {target:.6g}"


def summary_cells(row: pd.Series) -> list[str]:
    """One row of `labkit.tta.summary` as words, under `HEADINGS`."""
    reached, time, expected, samples, cost = target_cells(row)
    memory = memory_text(row["peak_memory_bytes"], row["peak_gpu_memory_bytes"])
    energy = joules_text(row["energy_j"]) if math.isfinite(row["energy_j"]) else "not measured"
    speed = count_text(row["samples_per_s"])
    return [row["budget"], row["provenance"], reached, time, expected, samples, speed, memory, energy, cost]


def target_cells(row: pd.Series) -> list[str]:
    """The cells of that row that follow the target (`labkit.tta.summaries.target_columns`)."""
    if math.isnan(row["target"]):
        return ["–"] * len(OF_TARGET)
    median, low, high = (row[f"time_{name}_s"] for name in ("median", "low", "high"))
    cost, *ends = (row[f"cost{end}_usd"] for end in ("", "_low", "_high"))
    return [
        reached_text(row),
        NOT_KNOWN
        if is_not_known(median, row["failed"], row["runs"])
        else time_text(median, low, high, row["time_level"]),
        time_text(row["expected_s"], row["expected_low_s"], row["expected_high_s"], 0.95),
        count_text(row["samples_median"]),
        "–" if math.isnan(cost) else time_text(cost, *ends, 0.95, "cost_usd"),
    ]


def bracketed(cell: str) -> Markup:
    """A cell in HTML, what it has in brackets being smaller.

    >>> print(bracketed("6.2 s (range 5 – 7 s)"))
    6.2 s <small>(range 5 – 7 s)</small>
    """
    main, bracket, rest = cell.partition(" (")
    return Markup("{} <small>({}</small>").format(main, rest) if bracket else escape(main)


def reached_text(row: pd.Series) -> str:
    """How many runs reached the target; the interval of their share, where more than one was run."""
    cut_off = f", {row['censored']:.0f} cut off" if row["censored"] else ""
    share = f" (95 % CI {100 * row['success_low']:.0f} – {100 * row['success_high']:.0f} %)" if row["runs"] > 1 else ""
    return f"{row['reached']:.0f} of {row['runs']:.0f}{cut_off}{share}"


def time_text(median: float, low: float, high: float, level: float = math.nan, x: str = "wall_s") -> str:
    """The median, or another time, with its interval or, where level is NaN, its range; on the axis x.

    >>> time_text(6.2, 5.9, 6.5), time_text(6.2, 6.2, 6.2), time_text(6.2, 5.9, math.inf, 0.95)
    ('6.2 s (range 5.9 – 6.5 s)', '6.2 s', '6.2 s (95 % CI 5.9 s – no bound)')
    """
    if not math.isfinite(median) or math.isnan(low) or low == high:
        return axis_text(median, x)
    name = "range" if math.isnan(level) else f"{100 * level:.0f} % CI"
    return f"{axis_text(median, x)} ({name} {_ends(low, high, x)})"


def _ends(low: float, high: float, x: str) -> str:
    """Both ends, with their unit once where it is the same."""
    first, last = axis_text(low, x), axis_text(high, x) if math.isfinite(high) else "no bound"
    number, space, unit = first.rpartition(" ")
    return f"{number if space and last.endswith(space + unit) else first} – {last}"


def memory_text(host_bytes: float, gpu_bytes: float) -> str:
    """
    >>> memory_text(2**30, math.nan), memory_text(2**30, 2**31)
    ('1.00 GiB', '1.00 GiB, GPU 2.00 GiB')
    """
    host = f"{host_bytes / 2**30:.2f} GiB" if math.isfinite(host_bytes) else "not measured"
    return f"{host}, GPU {gpu_bytes / 2**30:.2f} GiB" if math.isfinite(gpu_bytes) else host


def notes(summary: pd.DataFrame) -> list[str]:
    """What lines differ in, why cells are empty, what costs rest on: each reason once, with the budgets it is for."""
    lines = []
    for _, rows in summary.groupby("job", sort=False):
        fastest = rows["budget"].iloc[int(rows["time_median_s"].to_numpy().argmin())]
        for row in rows.to_dict("records"):
            who = f"{job_name(row['job'])}, {row['budget']}"
            if len(row["differs_in"]) > 1:
                what = in_words(row["differs_in"])
                lines.append(
                    f"{who} differs from the fastest, {fastest}, in {what}, so what comes of which cannot be told."
                )
            if row["disturbed"]:
                lines.append(
                    f"{who}: other programs disturbed {row['disturbed']} of {row['runs']} runs. "
                    "`labkit report --undisturbed` leaves them out."
                )
    told = {"Energy": summary[summary["energy_j"].isna()], "Cost": summary}
    for subject, rows in told.items():
        for reason, own in rows.groupby(f"{subject.lower()}_note", sort=False):
            where = "" if len(own) == len(summary) else f" ({', '.join(dict.fromkeys(own['budget']))})"
            lines.append(f"{subject}{where}: {reason}.")
    return lines


def in_words(names: Sequence[str]) -> str:
    """
    >>> in_words(["budget", "batch_size", "precision"])
    'budget, batch_size and precision'
    """
    return " and ".join([*([", ".join(names[:-1])] if len(names) > 1 else []), names[-1]])


def terminal_frames(summary: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """The summary for a terminal of 80 columns: a title and a frame, with a row a budget, for each job and target."""
    heads = ("Budget", "Reached", "Time to target", "With restarts", "Samples/s, memory", "Energy, cost")
    for (job, metric, target), rows in summary.groupby(["job", "metric", "target"], sort=False, dropna=False):
        table = []
        for row in rows.to_dict("records"):
            budget, provenance, *of_target, _, speed, memory, energy, cost = summary_cells(row)
            of_target = [cell.replace(" (", "\n(") for cell in of_target]
            table.append(
                (f"{budget}\n{provenance}", *of_target, f"{speed}\n{memory}", f"{energy}\n{cost.partition(' (')[0]}")
            )
        yield f"{job_name(job)}, {goal_text(metric, target)}", pd.DataFrame(table, columns=heads)

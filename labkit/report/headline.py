"""The answer in one sentence, a job."""

from __future__ import annotations

import math

import pandas as pd

from labkit.plots.words import budget_words, seconds_text
from labkit.report.table import goal_text, job_name


def headline(summary: pd.DataFrame) -> str:
    """What one job's runs say about its target: the fastest and the slowest budget, and how far apart.

    Args:
        summary: the rows of one job.
    """
    first = summary.iloc[0]
    job, goal = job_name(first["job"]), goal_text(first["metric"], first["target"])
    if math.isnan(first["target"]):
        return f"{job} has no target, and was not evaluated."
    if not first["target_given"]:
        goal += " (a value that its runs share; none was trained to it)"
    seeds = int(summary["runs"].sum())
    done = summary[summary["km_median_s"].map(math.isfinite)].sort_values("km_median_s", kind="stable")
    missed = summary[~summary["km_median_s"].map(math.isfinite)]
    if done.empty:
        return f"{job} did not reach {goal}: {int(summary['reached'].sum())} of {seeds} runs got there."
    fastest, slowest = done.iloc[0], done.iloc[-1]
    best = f"{seconds_text(fastest['km_median_s'])} ({_basis(fastest)})"
    sentence = f"{job} reached {goal} in {best} on {_place(fastest, done)}"
    if len(done) > 1:
        ratio = slowest["km_median_s"] / fastest["km_median_s"]
        sentence += f" and {seconds_text(slowest['km_median_s'])} on {_place(slowest, done)}"
        sentence += f": {ratio:.1f}× sooner" if ratio >= 1.05 else ": no difference to speak of"
    if len(missed):
        sentence += f"; not on {', '.join(_place(row, summary) for _, row in missed.iterrows())}"
    return sentence + "."


def _basis(row: pd.Series) -> str:
    if row["runs"] == 1:
        return "one run"
    if row["reached"] < row["runs"]:
        return f"median, {row['reached']} of {row['runs']} runs reached it"
    return f"median of {row['runs']} seeds"


def _place(row: pd.Series, among: pd.DataFrame) -> str:
    several = (among["budget"] == row["budget"]).sum() > 1
    return budget_words(row["budget"]) + (f" ({row['provenance']})" if several else "")

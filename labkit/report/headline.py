"""The answer in one sentence, a job."""

from __future__ import annotations

import math

import pandas as pd

from labkit.plots.words import budget_words, is_not_known, seconds_text
from labkit.report.table import goal_text, in_words, job_name


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
    done = summary[summary["time_median_s"].map(math.isfinite)].sort_values("time_median_s", kind="stable")
    missed = summary[~summary["time_median_s"].map(math.isfinite)]
    if done.empty:
        got_there = f"{summary['reached'].sum()} of {summary['runs'].sum()} runs got there"
        if all(is_not_known(row["time_median_s"], row["failed"], row["runs"]) for row in summary.to_dict("records")):
            return f"{job} was cut off too often to say how long {goal} takes: {got_there}."
        if summary["reached"].sum():
            return f"{job} reached {goal} in half of its runs or fewer: {got_there}."
        return f"{job} did not reach {goal}: {got_there}."
    fastest, slowest = done.iloc[0], done.iloc[-1]
    best = f"{seconds_text(fastest['time_median_s'])} ({_basis(fastest)})"
    sentence = f"{job} reached {goal} in {best} on {_place(fastest, done)}"
    if len(done) > 1:
        sentence += (
            f" and {seconds_text(slowest['time_median_s'])} on {_place(slowest, done)}: {_sooner(fastest, slowest)}"
        )
    if len(missed):
        sentence += f"; not by half of the runs on {', '.join(_place(row, summary) for _, row in missed.iterrows())}"
    return sentence + "."


def _sooner(fastest: pd.Series, slowest: pd.Series) -> str:
    """How many times as soon as the slowest the fastest was, where the interval lets one say so."""
    if fastest["disturbed"] or slowest["disturbed"]:
        return "how much sooner is not claimed, because other programs disturbed these runs"
    ratio, low, high = (slowest[name] for name in ("speed_up", "speed_up_low", "speed_up_high"))
    if math.isnan(ratio):
        return "how much sooner is not claimed, which takes three seeds of each that all reach it"
    if low <= 1:
        return f"no difference to tell from chance (95 % CI {low:.2f} – {high:.2f}×, {slowest['speed_up_seeds']} seeds)"
    several = f"; they differ in {in_words(slowest['differs_in'])}" if len(slowest["differs_in"]) > 1 else ""
    return f"{ratio:.1f}× sooner (95 % CI {low:.2f} – {high:.2f}×, {slowest['speed_up_seeds']} seeds{several})"


def _basis(row: pd.Series) -> str:
    if row["runs"] == 1:
        return "one run"
    if row["reached"] < row["runs"]:
        return f"median, {row['reached']} of {row['runs']} runs reached it"
    return f"median of {row['runs']} runs"


def _place(row: pd.Series, among: pd.DataFrame) -> str:
    several = (among["budget"] == row["budget"]).sum() > 1
    return budget_words(row["budget"]) + (f" ({row['provenance']})" if several else "")

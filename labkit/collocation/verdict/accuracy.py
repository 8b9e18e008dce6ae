"""When each job, and the last of them, reached its target: alone in turn, alone on hardware of its own, and shared."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from labkit.collocation.verdict.baseline import Baseline, starts_s
from labkit.tta.survival import median_time

OWN_HARDWARE = "alone, own hardware"
"""Beside the modes: what as many devices as there are jobs would need."""
ALL = "all jobs"
ACCURACY_COLUMNS = ["mix", "mode", "repeat", "job", "metric", "target", "reached", "time_s", "provenance"]
SUMMARY_COLUMNS = ["mix", "mode", "job", "rounds", "reached", "median_s", "low_s", "high_s", "fastest_s", "slowest_s"]


def accuracy_table(jobs: pd.DataFrame, baseline: Baseline) -> pd.DataFrame:
    """Time to target, counted from when the first job of the mix may begin.

    In mode alone a job waits for those before it to end; the same runs on a device each are OWN_HARDWARE. A job that
    did not reach its target stays in the table: time_s is inf where it failed, else how long it is known to have been
    short of it, *censored*.
    Jobs without a target, such as scripts, take their turn and have no row.

    Returns:
        ACCURACY_COLUMNS, one row a job and repeat, and one of ALL: reached when the last of them did, or censored if
        one did not.
    """
    rows = []
    for known, own, begins_s in _rounds(jobs, baseline):
        with_target = own[own["target"].notna()]
        if with_target.empty:
            continue
        own_rows = [_row(known, job, begins_s[at]) for at, job in with_target.iterrows()]
        rows += own_rows
        rows.append(
            {
                **own_rows[0],
                "job": ALL,
                "metric": None,
                "target": None,
                "reached": all(row["reached"] for row in own_rows),
                "time_s": max(row["time_s"] for row in own_rows),
            }
        )
    return pd.DataFrame(rows, columns=ACCURACY_COLUMNS).astype({"target": float, "reached": bool, "time_s": float})


def accuracy_summary(accuracy: pd.DataFrame) -> pd.DataFrame:
    """Over the repeats: Kaplan–Meier medians, in which failed and censored runs count.

    Returns:
        SUMMARY_COLUMNS. median_s is inf where half or more did not reach the target; low_s and high_s are its 95 %
        interval (NaN below five rounds: fastest_s and slowest_s, of those that did, say more).
    """
    rows = []
    for (mix, mode, job), own in accuracy.groupby(["mix", "mode", "job"], sort=False):
        median, low, high, _ = map(float, median_time(own["reached"].to_numpy(), own["time_s"].to_numpy()))
        times = own.loc[own["reached"], "time_s"]
        rows.append((mix, mode, job, len(own), int(own["reached"].sum()), median, low, high, times.min(), times.max()))
    return pd.DataFrame(rows, columns=SUMMARY_COLUMNS)


def _rounds(jobs: pd.DataFrame, baseline: Baseline) -> Iterator[tuple[dict, pd.DataFrame, list[float]]]:
    """What its rows have in common, its jobs numbered from 0, and when each may begin, in seconds."""
    for mix, mode, repeat, own in baseline.rounds(jobs):
        known = {"mix": mix, "repeat": repeat, "provenance": own["provenance"].iloc[0]}
        yield known | {"mode": mode}, own, starts_s(mode, own)
        if mode == "alone":
            yield known | {"mode": OWN_HARDWARE}, own, [0.0] * len(own)


def _row(known: dict, job: pd.Series, begins_s: float) -> dict:
    reached = bool(job["target_reached"])
    time_s = job["time_to_target_s"] if reached else job["last_evaluated_s"]
    return known | {
        "job": job["job"],
        "metric": job["metric"],
        "target": job["target"],
        "reached": reached,
        "time_s": begins_s + time_s,
    }

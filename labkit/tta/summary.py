"""The table under every time-to-accuracy figure: one row a job and budget."""

from __future__ import annotations

import numpy as np
import pandas as pd

from labkit.tta.cost import Cost, cost_usd
from labkit.tta.curves import default_target
from labkit.tta.survival import survival
from labkit.tta.thresholds import SERIES, crossings, higher_is_better

SUMMARY_COLUMNS = [
    *SERIES,
    "metric",
    "target",
    "target_given",
    "runs",
    "reached",
    "sustained",
    "time_median_s",
    "time_min_s",
    "time_max_s",
    "km_median_s",
    "km_low_s",
    "km_high_s",
    "samples_median",
    "samples_per_s",
    "peak_memory_bytes",
    "peak_gpu_memory_bytes",
    "energy_j",
    "energy_note",
    "cost_usd",
    "cost_note",
]


def summary(
    curves: pd.DataFrame, runs: pd.DataFrame, target: float | None = None, *, x: str = "wall_s"
) -> pd.DataFrame:
    """Time, samples, memory, energy and money that the target took, one row a (job, budget, provenance).

    Args:
        curves: one row an evaluation; each job's rows hold one metric.
        runs: one row a run (`run_table`). A run without an evaluation counts as one that did not reach the
            target, censored at 0 s.
        target: for every job; each job's own (`default_target`) if None.
        x: the clock of the times, "wall_s" or "train_s". Cost always counts wall seconds.

    Returns:
        SUMMARY_COLUMNS. target_given says whether any run was trained to this target. time_median_s,
        time_min_s, time_max_s and samples_median are over the runs that reached the target (NaN if none did);
        km_median_s counts the censored runs too (inf: not reached by half of them), as do its 95 % bounds (NaN
        below five runs). samples_per_s and energy_j (whole run) are medians over the runs, peak_memory_bytes and
        peak_gpu_memory_bytes (NaN on a CPU) their maxima; cost_usd is of km_median_s in wall seconds, and
        cost_note says what it rests on or why there is none.
    """
    rows = []
    for (job, metric), own_runs in runs.groupby(["job", "metric"], sort=False, dropna=False):
        own = curves[(curves["job"] == job) & curves["run"].isin(own_runs["run"])]
        goal = target
        if goal is None:
            goal = default_target(own, own_runs) if len(own) else float(own_runs["target"].max())
        rows += _job_rows(job, metric, own, own_runs, goal, x)
    return pd.DataFrame(rows, columns=SUMMARY_COLUMNS)


def all_crossings(
    curves: pd.DataFrame, runs: pd.DataFrame, target: float, *, higher_is_better: bool, x: str = "wall_s"
) -> pd.DataFrame:
    """`crossings` in the order of `runs`; a run that was never evaluated is censored at 0."""
    found = crossings(curves, target, higher_is_better=higher_is_better, x=x)
    joined = runs[[*SERIES, "run", "seed"]].merge(found.drop(columns=[*SERIES, "seed"]), on="run", how="left")
    for name, empty in {
        "reached": False,
        "sustained": False,
        "last_time_s": 0.0,
        "last_samples": 0.0,
    }.items():
        joined[name] = joined[name].astype(object).where(joined[name].notna(), empty).astype(type(empty))
    return joined.astype({"time_to_target_s": float, "samples_to_target": float, "sustained_time_s": float})


def _job_rows(job, metric, curves: pd.DataFrame, runs: pd.DataFrame, target: float, x: str) -> list[dict]:
    up = higher_is_better(str(metric), runs)
    hits = all_crossings(curves, runs, target, higher_is_better=up, x=x)
    wall = all_crossings(curves, runs, target, higher_is_better=up)
    estimates, wall_estimates = survival(hits), survival(wall)
    rows = []
    for row, wall_row in zip(estimates.itertuples(), wall_estimates.itertuples(), strict=True):
        series = {name: getattr(row, name) for name in SERIES}
        mine = hits[(hits[SERIES] == pd.Series(series)).all(axis=1)]
        own_runs = runs[runs["run"].isin(mine["run"])]
        reached = mine[mine["reached"]]
        notes = own_runs["energy_note"].dropna()
        cost = cost_usd(wall_row.median, own_runs["tier"].iloc[0])
        if np.isnan(target):
            cost = Cost(None, "there is no target")
        rows.append(
            {
                **series,
                "metric": metric,
                "target": target,
                "target_given": bool((runs["target"] == target).any()),
                "runs": row.runs,
                "reached": row.reached,
                "sustained": int(mine["sustained"].sum()),
                "time_median_s": _median(reached["time_to_target_s"]),
                "time_min_s": row.fastest,
                "time_max_s": row.slowest,
                "km_median_s": row.median,
                "km_low_s": row.low,
                "km_high_s": row.high,
                "samples_median": _median(reached["samples_to_target"]),
                "samples_per_s": _median(own_runs["samples_per_s"]),
                "peak_memory_bytes": own_runs["peak_memory_bytes"].max(),
                "peak_gpu_memory_bytes": own_runs["peak_gpu_memory_bytes"].max(),
                "energy_j": _median(own_runs["energy_j"]),
                "energy_note": None if notes.empty else notes.iloc[0],
                "cost_usd": np.nan if cost.value_usd is None else cost.value_usd,
                "cost_note": cost.note,
            }
        )
    return rows


def _median(values: pd.Series) -> float:
    known = values.dropna().to_numpy(float)
    return float(np.median(known)) if known.size else np.nan  # numpy warns about a median of nothing

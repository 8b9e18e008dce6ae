"""The table under every time-to-accuracy figure: one row a job and budget."""

from __future__ import annotations

from dataclasses import astuple

import numpy as np
import pandas as pd

from labkit.errors import UserError
from labkit.tta.cost import price_usd_per_h, usd_per_s
from labkit.tta.curve_tables import default_target
from labkit.tta.kaplan_meier import survival
from labkit.tta.sooner import speed_up
from labkit.tta.thresholds import SERIES, crossings

OF_TIMES = {
    "median": "time_median_s",
    "low": "time_low_s",
    "high": "time_high_s",
    "level": "time_level",
    "expected": "expected_s",
    "expected_low": "expected_low_s",
    "expected_high": "expected_high_s",
}
"""Columns of `survival`, as they are named here"""
SPEED_UP = ["speed_up", "speed_up_low", "speed_up_high", "speed_up_seeds"]
SUMMARY_COLUMNS = [
    *SERIES, "metric", "target", "target_given", "runs", "reached", "failed", "censored", "success_low", "success_high",
    "disturbed", *OF_TIMES.values(), *SPEED_UP, "differs_in", "samples_median", "samples_per_s",
    "peak_memory_bytes", "peak_gpu_memory_bytes", "energy_j", "energy_note", "cost_usd", "cost_low_usd",
    "cost_high_usd", "cost_note",
]  # fmt: skip


def summary(curves: pd.DataFrame, runs: pd.DataFrame, target: float | None = None) -> pd.DataFrame:
    """Time, samples, memory, energy and money that the target took, one row a (job, budget, provenance).

    Args:
        curves: one row an evaluation; each job's rows hold one metric.
        runs: one row a run (`run_table`). A run without an evaluation counts too, as failed or as censored at 0 s.
        target: for every job; each job's own (`default_target`) if None.

    Returns:
        SUMMARY_COLUMNS. target_given says whether any run was trained to this target; disturbed counts the runs that
        other programs disturbed. Shares, times and samples_median are those of `survival`. speed_up and its interval
        say how many times as soon the job's fastest row got there (`labkit.tta.sooner`; NaN where nothing can be said,
        as of disturbed runs), differs_in in which settings this row differs from that one. samples_per_s and energy_j
        (whole run) are medians over the runs, the peaks of memory maxima; cost_usd is the expected time with restarts
        at the tier's price, or cost_note says why there is none.
    """
    tables = []
    for (job, metric), own_runs in runs.groupby(["job", "metric"], sort=False, dropna=False):
        own = curves[(curves["job"] == job) & curves["run"].isin(own_runs["run"])]
        goal = target
        if goal is None:
            goal = default_target(own, own_runs) if len(own) else float(own_runs["target"].max())
        tables.append(_of_job(own, own_runs, goal).assign(metric=metric))
    return pd.concat(tables, ignore_index=True)[SUMMARY_COLUMNS] if tables else pd.DataFrame(columns=SUMMARY_COLUMNS)


def target_columns(times: dict[str, pd.DataFrame], runs: pd.DataFrame, x: str) -> pd.DataFrame:
    """Those columns of `summary` that follow the target, of one job: one row a series and target.

    `times` is `survival` by axis ("wall_s", "samples" and the clock x) of the same targets, `runs` the job's runs.
    """
    samples = times["samples"]["median"] if "samples" in times else np.nan
    table = times[x].rename(columns=OF_TIMES).assign(samples_median=samples)
    tiers = table[SERIES].merge(runs.drop_duplicates(SERIES), on=SERIES, how="left")["tier"]
    price = usd_per_s(tiers).where(table["reached"] > 0)
    return table.assign(
        **{f"cost{end}_usd": price * times["wall_s"][f"expected{end}"] for end in ("", "_low", "_high")}
    )


def _of_job(curves: pd.DataFrame, runs: pd.DataFrame, target: float) -> pd.DataFrame:
    hits = crossings(curves, runs, target)
    series, of_series = (_parts(runs), _parts(hits))
    times = {axis: survival(curves, runs, target, x=axis) for axis in ("wall_s", "samples")}
    if times["wall_s"].empty:
        raise UserError(
            f"of {runs['job'].iloc[0]} only the training to a target is told, no time: use labkit.tta.by_batch_size."
        )
    table = target_columns(times, runs, "wall_s")
    fastest = int(np.argmin(table["time_median_s"].to_numpy()))
    rows = []
    for number, (own, mine) in enumerate(zip(series, of_series, strict=True)):
        is_sound = number != fastest and not (pd.concat([own, series[fastest]])["disturbed"] != "").any()
        sooner = speed_up(of_series[fastest], mine, len(series)) if is_sound else None
        ratios = astuple(sooner) if sooner else (np.nan, np.nan, np.nan, 0)
        settings, others = own["settings"].iloc[0], series[fastest]["settings"].iloc[0]
        price, notes = price_usd_per_h(own["tier"].iloc[0]), own["energy_note"].dropna()
        unreached = "there is no target" if np.isnan(target) else "the target was not reached"
        is_told = not np.isnan(target) and (price.value_usd is None or table["reached"].iloc[number])
        rows.append(
            {
                "disturbed": int((own["disturbed"] != "").sum()),
                **dict(zip(SPEED_UP, ratios, strict=True)),
                "differs_in": tuple(
                    name for name in {**others, **settings} if str(settings.get(name)) != str(others.get(name))
                ),
                **own[["samples_per_s", "energy_j"]].astype(float).median(),
                **own[["peak_memory_bytes", "peak_gpu_memory_bytes"]].max(),
                "energy_note": None if notes.empty else notes.iloc[0],
                "cost_note": price.note if is_told else unreached,
            }
        )
    return table.join(pd.DataFrame(rows)).assign(target_given=bool((runs["target"] == target).any()))


def _parts(frame: pd.DataFrame) -> list[pd.DataFrame]:
    """The rows of each series, in the order of `survival`."""
    return [own for _, own in frame.groupby(SERIES, sort=False, dropna=False)]

"""The table under every time-to-accuracy figure: one row a job and budget."""

from __future__ import annotations

import numpy as np
import pandas as pd

from labkit.tta.cost import price_usd_per_h
from labkit.tta.curves import default_target
from labkit.tta.sooner import speed_up
from labkit.tta.survival import survival
from labkit.tta.thresholds import SERIES, crossings

SUMMARY_COLUMNS = [
    *SERIES,
    "metric",
    "target",
    "target_given",
    "runs",
    "reached",
    "failed",
    "censored",
    "success_low",
    "success_high",
    "sustained",
    "disturbed",
    "time_median_s",
    "time_low_s",
    "time_high_s",
    "time_level",
    "expected_s",
    "expected_low_s",
    "expected_high_s",
    "speed_up",
    "speed_up_low",
    "speed_up_high",
    "speed_up_seeds",
    "differs_in",
    "samples_median",
    "samples_per_s",
    "peak_memory_bytes",
    "peak_gpu_memory_bytes",
    "energy_j",
    "energy_note",
    "cost_usd",
    "cost_low_usd",
    "cost_high_usd",
    "cost_note",
]


def summary(
    curves: pd.DataFrame, runs: pd.DataFrame, target: float | None = None, *, x: str = "wall_s"
) -> pd.DataFrame:
    """Time, samples, memory, energy and money that the target took, one row a (job, budget, provenance).

    Args:
        curves: one row an evaluation; each job's rows hold one metric.
        runs: one row a run (`run_table`). A run without an evaluation counts too, as failed or as censored at 0 s.
        target: for every job; each job's own (`default_target`) if None.
        x: the clock of the times, "wall_s" or "train_s". Cost always counts wall seconds.

    Returns:
        SUMMARY_COLUMNS. target_given says whether any run was trained to this target; sustained counts the runs that
        confirmed it, disturbed those that other programs disturbed. The shares, the time's median with its bounds, the
        expected time with restarts and samples_median are those of `survival`. speed_up and its 95 % interval say how
        many times as soon the job's fastest row reached the target (`labkit.tta.sooner`; NaN where nothing can be said,
        as of disturbed runs), and differs_in in which settings this row differs from that one. samples_per_s and
        energy_j (whole run) are medians over the runs, peak_memory_bytes and peak_gpu_memory_bytes (NaN on a CPU) their
        maxima; cost_usd is the expected wall time with restarts at the tier's price, and cost_note says what it rests
        on or why there is none.
    """
    rows = []
    for (job, metric), own_runs in runs.groupby(["job", "metric"], sort=False, dropna=False):
        own = curves[(curves["job"] == job) & curves["run"].isin(own_runs["run"])]
        goal = target
        if goal is None:
            goal = default_target(own, own_runs) if len(own) else float(own_runs["target"].max())
        rows += _job_rows(metric, own, own_runs, goal, x)
    return pd.DataFrame(rows, columns=SUMMARY_COLUMNS)


def target_columns(times: dict[str, pd.DataFrame], tiers: list[str | None], x: str) -> pd.DataFrame:
    """Those columns of `summary` that follow the target, of one job.

    Args:
        times: `survival` by axis: "wall_s", "samples" and x, of the same targets.
        tiers: of each series, in the order of its first row there.
        x: the clock.

    Returns:
        One row a series and target, in the order of `times`.
    """
    found, wall = times[x], times["wall_s"]
    columns = [*SERIES, "target", "runs", "reached", "failed", "censored", "success_low", "success_high"]
    table = found[columns].assign(
        time_median_s=found["median"],
        time_low_s=found["low"],
        time_high_s=found["high"],
        time_level=found["level"],
        expected_s=found["expected"],
        expected_low_s=found["expected_low"],
        expected_high_s=found["expected_high"],
        samples_median=times["samples"]["median"],
    )
    prices = [price_usd_per_h(tier).value_usd for tier in tiers]
    hourly = np.repeat(np.array(prices, float), len(found) // len(tiers))
    hourly = np.where(found["reached"] > 0, hourly, np.nan) / 3600
    return table.assign(
        cost_usd=hourly * wall["expected"],
        cost_low_usd=hourly * wall["expected_low"],
        cost_high_usd=hourly * wall["expected_high"],
    )


def _job_rows(metric, curves: pd.DataFrame, runs: pd.DataFrame, target: float, x: str) -> list[dict]:
    hits = crossings(curves, runs, target, x=x)
    series = [runs.iloc[places] for places in _places(runs)]
    of_series = [hits.iloc[places] for places in _places(hits)]
    tiers = [own["tier"].iloc[0] for own in series]
    times = {axis: survival(curves, runs, target, x=axis) for axis in {x, "wall_s", "samples"}}
    table = target_columns(times, tiers, x)
    fastest = int(np.argmin(table["time_median_s"].to_numpy()))
    rows = []
    for number, (own, mine) in enumerate(zip(series, of_series, strict=True)):
        notes = own["energy_note"].dropna()
        compared = pd.concat([own, series[fastest]])
        is_sound = number != fastest and not (compared["disturbed"] != "").any()
        sooner = speed_up(of_series[fastest], mine, len(series)) if is_sound else None
        rows.append(
            {
                **table.iloc[number],
                "metric": metric,
                "target_given": bool((runs["target"] == target).any()),
                "sustained": int(mine["sustained"].sum()),
                "disturbed": int((own["disturbed"] != "").sum()),
                "speed_up": np.nan if sooner is None else sooner.ratio,
                "speed_up_low": np.nan if sooner is None else sooner.low,
                "speed_up_high": np.nan if sooner is None else sooner.high,
                "speed_up_seeds": 0 if sooner is None else sooner.seeds,
                "differs_in": _differences(own["settings"].iloc[0], series[fastest]["settings"].iloc[0]),
                "samples_per_s": _median(own["samples_per_s"]),
                "peak_memory_bytes": own["peak_memory_bytes"].max(),
                "peak_gpu_memory_bytes": own["peak_gpu_memory_bytes"].max(),
                "energy_j": _median(own["energy_j"]),
                "energy_note": None if notes.empty else notes.iloc[0],
                "cost_note": _cost_note(table.iloc[number], tiers[number]),
            }
        )
    return rows


def _places(frame: pd.DataFrame) -> list[np.ndarray]:
    """Rows of each series, in the order of `survival`."""
    return list(frame.reset_index(drop=True).groupby(SERIES, sort=False, dropna=False).indices.values())


def _differences(settings: dict, others: dict) -> tuple[str, ...]:
    names = dict.fromkeys([*others, *settings])
    return tuple(name for name in names if str(settings.get(name)) != str(others.get(name)))


def _cost_note(row: pd.Series, tier: str | None) -> str:
    price = price_usd_per_h(tier)
    if np.isnan(row["target"]):
        return "there is no target"
    return price.note if price.value_usd is None or row["reached"] else "the target was not reached"


def _median(values: pd.Series) -> float:
    known = values.dropna().to_numpy(float)
    return float(np.median(known)) if known.size else np.nan  # numpy warns about a median of nothing

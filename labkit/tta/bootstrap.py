"""How far runs of one series lie apart: at each level of the metric, a band of times."""

from __future__ import annotations

import zlib

import numpy as np
import pandas as pd

from labkit.tta.survival import MIN_RUNS_FOR_INTERVAL
from labkit.tta.thresholds import SERIES


def band(
    curves: pd.DataFrame,
    *,
    higher_is_better: bool,
    x: str = "wall_s",
    levels: np.ndarray | None = None,
    resamples: int = 1000,
    seed: int = 0,
) -> pd.DataFrame:
    """The spread of the time at which the runs of a series get to each level of the metric.

    The band runs along the x axis, so that where it meets the target line it is the spread of the time to
    target, and a run that stops once it has reached its target does not bend it. Times are read off the drawn
    curve (straight between evaluations, best value so far). From five runs on it is the 95 % percentile
    bootstrap of the median, resampling runs; of fewer runs it is their range, and `kind` says so. It ends at
    the level beyond which an edge is unknown, because a run that never got there counts as longer than all
    others.

    Args:
        curves: one row an evaluation, of one metric.
        higher_is_better: direction of the metric.
        x: the column to read, such as "wall_s", "train_s", "samples" or "cost_usd".
        levels: values of the metric; 80 evenly spaced ones from the worst to the best evaluation if None.
        resamples: bootstrap repetitions.
        seed: makes the bootstrap repeatable.

    Returns:
        job, budget, provenance, level, low, median, high (in units of x), runs, kind. Series of one run have
        no rows.
    """
    rows = []
    for series, group in curves.dropna(subset=["value", x]).groupby(SERIES, sort=False, dropna=False):
        runs = [curve.sort_values(x, kind="stable") for _, curve in group.groupby("run", sort=False)]
        if len(runs) < 2:
            continue
        grid = np.linspace(group["value"].min(), group["value"].max(), 80) if levels is None else np.asarray(levels)
        times = np.stack([_level_times(run, grid, x, higher_is_better) for run in runs])  # (R, L)
        if len(runs) < MIN_RUNS_FOR_INTERVAL:
            kind, low, high = f"range of {len(runs)} seeds", times.min(axis=0), times.max(axis=0)
        else:
            kind = f"95 % bootstrap band of the median of {len(runs)} runs"
            # a generator a series, so that adding a budget leaves the others' bands as they were
            generator = np.random.default_rng([seed, zlib.crc32("\0".join(map(str, series)).encode())])
            picks = generator.integers(len(runs), size=(resamples, len(runs)))
            medians = np.median(times[picks], axis=1)  # (resamples, L)
            low = np.quantile(medians, 0.025, axis=0, method="lower")
            high = np.quantile(medians, 0.975, axis=0, method="higher")
        known = np.isfinite(high)
        frame = pd.DataFrame({"level": grid, "low": low, "median": np.median(times, axis=0), "high": high})[known]
        rows.append(frame.assign(**dict(zip(SERIES, series, strict=True)), runs=len(runs), kind=kind))
    columns = [*SERIES, "level", "low", "median", "high", "runs", "kind"]
    return pd.concat(rows, ignore_index=True)[columns] if rows else pd.DataFrame(columns=columns)


def _level_times(curve: pd.DataFrame, levels: np.ndarray, x: str, higher_is_better: bool) -> np.ndarray:
    """(L,) where the best value so far gets to each level; inf beyond the best."""
    sign = 1 if higher_is_better else -1
    best = np.maximum.accumulate(sign * curve["value"].to_numpy(float))
    place = curve[x].to_numpy(float)
    rising = np.concatenate([[True], np.diff(best) > 0])  # the first evaluation at each best value
    # a plateau before a rise must not move the rise: keep its last evaluation too
    plateau_end = np.concatenate([np.diff(best) > 0, [False]])
    keep = rising | plateau_end
    wanted = sign * levels
    order = np.searchsorted(best[keep], wanted, side="left")
    points, heights = place[keep], best[keep]
    times = np.full(len(wanted), np.inf)
    inside = order < len(heights)
    after = order[inside]
    before = np.maximum(after - 1, 0)
    rise = heights[after] - heights[before]
    share = np.divide(wanted[inside] - heights[before], rise, out=np.ones(len(after)), where=rise > 0)
    times[inside] = np.where(after == 0, points[0], points[before] + share * (points[after] - points[before]))
    return times

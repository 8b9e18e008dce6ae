"""Time to target when not every run gets there: Kaplan–Meier, in which failed is not censored.

A run that *failed* will never reach the target: its time is infinite, and it keeps waiting for ever. A run that was
*cut off* says only that its time is longer than its last evaluation; from then on it is left out of the count. Leaving
either out altogether would make hard targets look cheap, because only the lucky runs stay.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from labkit.tta.restarts import expected_to_target, success_interval
from labkit.tta.thresholds import SERIES, Attempts, attempts, higher_is_better

MIN_RUNS_FOR_INTERVAL = 5
"""Fewer runs cannot bound a median: their whole range misses it in one case of eight (four runs) or of four (three)."""
MOST_WORK = 60_000
"""Runs times easier targets that are looked at, at most, to hold the median of a harder one above theirs: of ten runs
all targets, up to six hundred evaluations of each; of hundreds of runs some hundreds"""
SURVIVAL_COLUMNS = [
    *SERIES, "target", "runs", "reached", "failed", "censored", "success_low", "success_high", "median", "low", "high",
    "level", "expected", "expected_low", "expected_high",
]  # fmt: skip
BAND_COLUMNS = [*SERIES, "level", "low", "median", "high", "runs", "kind"]


def survival(
    curves: pd.DataFrame, runs: pd.DataFrame, targets: float | np.ndarray, *, x: str = "wall_s"
) -> pd.DataFrame:
    """How long each series of runs takes to each target, with how often it gets there and what that costs in all.

    A harder target never takes less: where runs were cut off, the estimates of single targets can cross though the
    times that they estimate cannot; then the largest one of all easier targets counts.

    Args:
        curves: one row an evaluation (`labkit.tta.curves`) of one metric.
        runs: one row a run (`labkit.tta.run_table`).
        targets: one value of the metric, or several.
        x: "wall_s", "train_s", "samples", "energy_j" or "cost_usd", in whose unit the times are.

    Returns:
        SURVIVAL_COLUMNS, one row a series and target: the 95 % interval of the share of runs that get there; median,
        low, high and level of `median_time` (where level is NaN, low and high are the fastest and the slowest run, inf
        if one did not get there); and `expected_to_target`.
    """
    targets = np.atleast_1d(np.asarray(targets, float))
    found = attempts(curves, runs, targets, x)
    frames = [pd.DataFrame(columns=SURVIVAL_COLUMNS)]
    for series, places in found.runs.reset_index(drop=True).groupby(SERIES, sort=False, dropna=False).indices.items():
        own = found.of(places)
        reached, failed, count = own.reached.sum(axis=1), own.failed.sum(axis=1), len(places)
        censored = count - reached - failed
        estimates = _estimates(own)
        if censored.any():
            metric = str((curves if len(curves) else runs)["metric"].iloc[0])
            sign = 1.0 if higher_is_better(metric, own.runs) else -1.0  # sign * target grows with its hardness
            levels = np.unique(sign * curves.loc[curves["run"].isin(own.runs["run"]), "value"].dropna())
            most = max(MOST_WORK // count, 100)
            levels = levels[np.linspace(0, len(levels) - 1, min(most, len(levels))).astype(int)]
            before = _estimates(attempts(curves, own.runs, sign * levels, x))
            easier = np.searchsorted(levels, sign * targets) - 1
            for name in ("median", "high", "expected", "expected_high"):
                most_before = np.append(np.fmax.accumulate(before[name]), np.nan)  # NaN where no level is easier
                estimates[name] = np.fmax(estimates[name], most_before[easier])
        success_low, success_high = success_interval(reached, count, censored)
        counts = {"target": targets, "runs": count, "reached": reached, "failed": failed, "censored": censored}
        shares = {"success_low": success_low, "success_high": success_high}
        frames.append(pd.DataFrame(dict(zip(SERIES, series, strict=True)) | counts | shares | estimates))
    return pd.concat(frames[1:] or frames, ignore_index=True)[SURVIVAL_COLUMNS]


def _estimates(own: Attempts) -> dict[str, np.ndarray]:
    median, low, high, level = median_time(own.reached, own.time)
    is_range, times = np.isnan(level), np.where(own.reached, own.time, np.inf)
    low, high = np.where(is_range, times.min(axis=1), low), np.where(is_range, times.max(axis=1), high)
    values = (median, low, high, level, *expected_to_target(own.spent, own.reached, own.failed))
    return dict(zip(SURVIVAL_COLUMNS[-len(values) :], values, strict=True))


def band(times: pd.DataFrame) -> pd.DataFrame:
    """The spread of the time at which the runs of a series get to each level of the metric: BAND_COLUMNS.

    `times` is `survival` of levels of the metric. The band ends at the level beyond which an edge is unknown; series of
    one run have no rows.
    """
    known = times[(times["runs"] > 1) & np.isfinite(times["high"])].reset_index(drop=True)
    kind = [
        f"range of {runs} runs" if np.isnan(level) else f"{100 * level:.0f} % interval of the median of {runs} runs"
        for level, runs in zip(known["level"], known["runs"], strict=True)
    ]
    return known.assign(kind=kind, level=known["target"])[BAND_COLUMNS]


def median_time(reached: np.ndarray, time: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Kaplan–Meier median of the time to target, with its 95 % interval.

    Where the estimate rests exactly on one half the median is the middle of that step, so that it is the ordinary
    median where all runs reached; it is inf where half of the runs or more do not get there.

    The interval ends where the beta product confidence limits of the estimate pass one half (Fay, Brittain and Proschan
    2013, Biostatistics 14:723). Without censoring these are the order statistics of the sign test: exact, and mostly
    above 95 %; of five runs it is their range, which covers 93.75 %.

    Args:
        reached: (..., R) whether each run reached the target.
        time: (..., R) when it did; inf where it failed, its last evaluation where it was cut off.

    Returns:
        median, low, high in the unit of `time`, and the interval's level, each (...). low and high are inf where
        nothing bounds them, and all three are NaN where fewer than `MIN_RUNS_FOR_INTERVAL` runs were still counted when
        the first of them got there.
    """
    reached, time = np.asarray(reached, bool), np.asarray(time, float)
    order = np.lexsort((~reached, time), axis=-1)
    reached, time = np.take_along_axis(reached, order, -1), np.take_along_axis(time, order, -1)
    size = time.shape[-1]
    waiting, *moments = _estimate(reached)
    counted = size - reached.argmax(-1)
    tail = (np.maximum(0.025, 0.5**counted) + 1e-9)[..., None]
    left = np.arange(size)[::-1]
    # the lower limit after each, which the next to get there would lower, and the upper one, are below one half
    lower_is_below = (left == 0) | (
        _share_below_half(*(m * left / (left + n) for n, m in enumerate(moments, 1))) > tail
    )
    upper_is_below = 1 - _share_below_half(*moments) <= tail

    def first_where(test: np.ndarray) -> np.ndarray:
        places = np.append(test, np.ones((*test.shape[:-1], 1), bool), axis=-1).argmax(-1)[..., None]
        ever = np.append(time, np.full((*time.shape[:-1], 1), np.inf), axis=-1)
        return np.take_along_axis(ever, places, -1)[..., 0]

    tests = (waiting < 0.5 + 1e-9, waiting < 0.5 - 1e-9, lower_is_below, upper_is_below)
    at_half, after_half, low, high = map(first_where, tests)
    is_known = reached.any(-1) & (counted >= MIN_RUNS_FOR_INTERVAL)
    bounds = (np.where(is_known, each, np.nan) for each in (low, high, 1 - 2 * (tail[..., 0] - 1e-9)))
    return (at_half + after_half) / 2, *bounds


def survival_curve(reached: np.ndarray, time: np.ndarray) -> pd.DataFrame:
    """Kaplan–Meier estimate of the share of runs still short of the target.

    `reached` (R,) and `time` (R,) are as for `median_time`. Columns time and waiting: from 0, a row a time at which a
    run got there or was cut off.
    """
    reached, time = np.asarray(reached, bool), np.asarray(time, float)
    order = np.lexsort((~reached, time))
    waiting, *_ = _estimate(reached[order])
    frame = pd.DataFrame({"time": np.append(0.0, time[order]), "waiting": np.append(1.0, waiting)})
    return frame[np.isfinite(frame["time"])].drop_duplicates("time", keep="last").reset_index(drop=True)


def _estimate(reached: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of runs in order of time, each (..., R): the share still waiting after each; two moments of its upper limit."""
    at_risk = np.arange(reached.shape[-1], 0, -1)
    factors = (1 - reached / at_risk, *(np.where(reached, at_risk / (at_risk + power), 1.0) for power in (1, 2)))
    return tuple(np.cumprod(factor, axis=-1) for factor in factors)


def _share_below_half(first_moment: np.ndarray, second_moment: np.ndarray) -> np.ndarray:
    """Of the beta distribution with these moments; 0 where it is the number 1."""
    from scipy.special import betainc

    with np.errstate(divide="ignore", invalid="ignore"):
        scale = (first_moment - second_moment) / (second_moment - first_moment**2)
        share = betainc(first_moment * scale, (1 - first_moment) * scale, 0.5)
    return np.where(first_moment == 1, 0.0, share)

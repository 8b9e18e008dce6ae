"""Time to target when some runs stop short: Kaplan–Meier, so that no run is dropped.

A run that ended before the target is *censored*: its time to target is longer than its last evaluation, and
that is all it says. Leaving such runs out would make hard targets look cheap, because only the lucky runs
stay.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from labkit.tta.thresholds import SERIES, crossings

MIN_RUNS_FOR_INTERVAL = 5
"""Below this many runs an interval says nothing that the range does not say more honestly."""


def survival_curve(reached: np.ndarray, time: np.ndarray) -> pd.DataFrame:
    """Kaplan–Meier estimate of the share of runs still short of the target.

    Args:
        reached: (N,) whether each run reached the target.
        time: (N,) when it did, or when it was last evaluated if it did not; any unit.

    Returns:
        One row a time, from 0: columns time, waiting (share still short of the target), low, high (95 %
        pointwise, log-log transformed Greenwood, Kalbfleisch and Prentice 2002, section 1.4).
    """
    from lifelines import KaplanMeierFitter  # pulls in autograd: a second that most callers do not need

    fitter = KaplanMeierFitter().fit(np.asarray(time, float), np.asarray(reached, bool))
    bounds = fitter.confidence_interval_survival_function_
    frame = fitter.survival_function_.join(bounds).reset_index()
    frame.columns = ["time", "waiting", "low", "high"]
    return frame


def median_time(reached: np.ndarray, time: np.ndarray) -> tuple[float, float, float]:
    """Kaplan–Meier median of the time to target, with its 95 % interval.

    Where the curve rests exactly on one half the median is the middle of that step, as in R's `survfit`, so
    that without censoring it is the ordinary median. With more than half the runs censored there is no median
    to
    report, even where early censoring lets the estimate pass one half: it would rest on a minority of the
    runs.

    Returns:
        median, low, high in the unit of `time`; median is inf if not reached, the bounds are NaN below
        `MIN_RUNS_FOR_INTERVAL` runs or without a median, and high is inf where nothing bounds it.
    """
    reached, time = np.asarray(reached, bool), np.asarray(time, float)
    if 2 * reached.sum() < len(reached) or not reached.any():
        return np.inf, np.nan, np.nan
    if reached.all() and len(reached) < MIN_RUNS_FOR_INTERVAL:
        return float(np.median(time)), np.nan, np.nan  # what the curve gives, without fitting it
    curve = survival_curve(reached, time)
    median = _where_half(curve["time"], curve["waiting"], middle=True)
    if len(reached) < MIN_RUNS_FOR_INTERVAL or not np.isfinite(median):
        return median, np.nan, np.nan
    low = _where_half(curve["time"], curve["low"])
    high = _where_half(curve["time"], curve["high"])
    return median, low, high


def _where_half(time: pd.Series, share: pd.Series, middle: bool = False) -> float:
    below = np.flatnonzero(share.to_numpy() < 0.5 + 1e-9)
    if below.size == 0:
        return np.inf
    first = below[0]
    lower = np.flatnonzero(share.to_numpy() < 0.5 - 1e-9)
    if middle and lower.size and lower[0] > first:
        return float((time.iloc[first] + time.iloc[lower[0]]) / 2)
    return float(time.iloc[first])


def survival(crossings: pd.DataFrame, *, quantity: str = "time") -> pd.DataFrame:
    """Median time (or samples) to target of each series of runs, censored runs included.

    Args:
        crossings: one row a run, from `crossings`.
        quantity: "time" or "samples".

    Returns:
        One row a (job, budget, provenance): runs, reached, median, low, high (95 %, see `median_time`),
        fastest, slowest (of the runs that reached the target; NaN if none did).
    """
    until = {"time": "time_to_target_s", "samples": "samples_to_target"}[quantity]
    last = {"time": "last_time_s", "samples": "last_samples"}[quantity]
    rows = []
    for series, group in crossings.groupby(SERIES, sort=False, dropna=False):
        reached = group["reached"].to_numpy(bool)
        median, low, high = median_time(reached, np.where(reached, group[until], group[last]))
        rows.append(
            {
                **dict(zip(SERIES, series, strict=True)),
                "runs": len(group),
                "reached": int(reached.sum()),
                "median": median,
                "low": low,
                "high": high,
                "fastest": group[until].min(),
                "slowest": group[until].max(),
            }
        )
    columns = [*SERIES, "runs", "reached", "median", "low", "high", "fastest", "slowest"]
    return pd.DataFrame(rows, columns=columns)


def time_against_target(
    curves: pd.DataFrame, targets: np.ndarray, *, higher_is_better: bool, x: str = "wall_s"
) -> pd.DataFrame:
    """How long each target takes: `survival` at every target of a grid.

    A platform that wins clearly at one target may hardly lead at a slightly harder one (ADMS 2020, arXiv
    2003.12366): one target is one point of this curve.

    Returns:
        The columns of `survival`, and target.
    """
    frames = [
        survival(crossings(curves, float(target), higher_is_better=higher_is_better, x=x)).assign(target=float(target))
        for target in targets
    ]
    return pd.concat(frames, ignore_index=True)

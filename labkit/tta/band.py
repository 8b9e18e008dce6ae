"""How far runs of one series lie apart: at each level of the metric, a band of times."""

from __future__ import annotations

import numpy as np
import pandas as pd

from labkit.tta.survival import survival
from labkit.tta.thresholds import SERIES

BAND_COLUMNS = [*SERIES, "level", "low", "median", "high", "runs", "kind"]
LEVELS = 80


def band(curves: pd.DataFrame, runs: pd.DataFrame, *, x: str = "wall_s", levels: np.ndarray | None = None) -> pd.DataFrame:
    """The spread of the time at which the runs of a series get to each level of the metric: `survival`, drawn.

    The band runs along the x axis, so that where it meets the target line it is the interval of the time to target, and
    a run that stops once it has reached its target does not bend it. It ends at the level beyond which an edge is
    unknown.

    Args:
        curves: one row an evaluation, of one metric.
        runs: one row a run (`labkit.tta.run_table`).
        x: the column to read, such as "wall_s", "train_s", "samples" or "cost_usd".
        levels: values of the metric; LEVELS evenly spaced ones from the worst to the best evaluation if None.

    Returns:
        BAND_COLUMNS; low, median and high in units of x, kind in words. Series of one run have no rows.
    """
    if levels is None:
        levels = np.linspace(curves["value"].min(), curves["value"].max(), LEVELS)
    found = survival(curves, runs, levels, x=x).rename(columns={"target": "level_of_metric"})
    found = found[(found["runs"] > 1) & np.isfinite(found["high"])]
    kind = [interval_words(row.level, row.runs) for row in found.itertuples()]
    return found.assign(kind=kind).drop(columns="level").rename(columns={"level_of_metric": "level"})[BAND_COLUMNS]


def interval_words(level: float, runs: int) -> str:
    """What lies between low and high.

    >>> interval_words(0.95, 8), interval_words(float("nan"), 3)
    ('95 % interval of the median of 8 runs', 'range of 3 runs')
    """
    if np.isnan(level):
        return f"range of {runs} runs"
    return f"{100 * level:.0f} % interval of the median of {runs} runs"

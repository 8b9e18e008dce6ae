"""How far runs of one series lie apart: at each level of the metric, a band of times."""

from __future__ import annotations

import numpy as np
import pandas as pd

from labkit.tta.thresholds import SERIES

BAND_COLUMNS = [*SERIES, "level", "low", "median", "high", "runs", "kind"]


def band(times: pd.DataFrame) -> pd.DataFrame:
    """The spread of the time at which the runs of a series get to each level of the metric.

    The band runs along the x axis, so that where it meets the target line it is the interval of the time to target, and
    a run that stops once it has reached its target does not bend it. It ends at the level beyond which an edge is
    unknown.

    Args:
        times: `survival` of levels of the metric.

    Returns:
        BAND_COLUMNS: low, median and high as in `times`, kind in words. Series of one run have no rows.
    """
    known = times[(times["runs"] > 1) & np.isfinite(times["high"])]
    kind = [_interval(level, runs) for level, runs in zip(known["level"], known["runs"], strict=True)]
    return known.assign(kind=kind, level=known["target"])[BAND_COLUMNS].reset_index(drop=True)


def _interval(level: float, runs: int) -> str:
    if np.isnan(level):
        return f"range of {runs} runs"
    return f"{100 * level:.0f} % interval of the median of {runs} runs"

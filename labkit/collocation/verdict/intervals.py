"""The mean of a few repeats, and how far it can be trusted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

CONFIDENCE = 0.95


class Interval(NamedTuple):
    """A mean with its confidence interval."""

    mean: float
    """NaN where nothing was measured"""
    low: float
    """NaN where there is one repeat: nothing says how far another would lie from it"""
    high: float
    repeats: int


def mean_of_repeats(values: Iterable[float]) -> Interval:
    """The geometric mean and its 95 % interval, by Student's t on the logarithms.

    All that is averaged here is a ratio or a duration, which no interval should let go below zero. Not a bootstrap: of
    three repeats it would be far too narrow.

    Args:
        values: one a repeat; those that are NaN, or not above zero, were not measured and do not count.

    >>> [round(number, 2) for number in mean_of_repeats([1.0, 2.0, 4.0])]
    [2.0, 0.36, 11.19, 3]
    >>> mean_of_repeats([1.5])
    Interval(mean=1.5, low=nan, high=nan, repeats=1)
    """
    known = np.array([value for value in values if np.isfinite(value) and value > 0], float)
    if known.size < 2:
        return Interval(float(known[0]) if known.size else np.nan, np.nan, np.nan, known.size)
    from scipy.special import stdtrit  # quicker to import than scipy.stats

    logs = np.log(known)
    half = stdtrit(known.size - 1, (1 + CONFIDENCE) / 2) * logs.std(ddof=1) / np.sqrt(known.size)
    mean, low, high = np.exp([logs.mean(), logs.mean() - half, logs.mean() + half]).tolist()
    return Interval(mean, low, high, known.size)


def overlap(one: Interval, other: Interval) -> bool | None:
    """Whether two intervals have a value in common; None where one of them is not known."""
    ends = (one.low, one.high, other.low, other.high)
    if not np.isfinite(ends).all():
        return None
    return one.low <= other.high and other.low <= one.high

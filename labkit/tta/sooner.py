"""How many times as soon one series reaches a target as another: a ratio with an interval, or none."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

MIN_SEEDS = 3
"""Two differences give a t-interval of 12.7 standard errors to each side, which says nothing."""


@dataclass(frozen=True)
class SpeedUp:
    """How many times as long the other series takes."""

    ratio: float
    low: float
    """Of the 95 % interval"""
    high: float
    seeds: int
    """Distinct ones that it rests on, of the series with fewer"""


def speed_up(crossings: pd.DataFrame, than: pd.DataFrame, among: int = 2) -> SpeedUp | None:
    """How many times as soon the runs of a series reached a target as those of another.

    The ratio is that of geometric means, its interval Student's t on logarithms: of pairs where at least three seeds
    are in both series, else of the two means (Welch). A seed that was run more than once counts once, by its mean; runs
    without a seed are seeds of their own, and never a pair. Where the two were picked among several, as the fastest and
    another, the interval is wider by as many pairs as there were to pick from (Bonferroni).

    Args:
        crossings: of the series, one row a run (`labkit.tta.crossings`); `than` those of the other one.
        among: of how many series they were picked.

    Returns:
        None below three distinct seeds, or where a run did not reach the target: the times of the others are then no
        fair draw (the expected time with restarts compares such series).
    """
    from scipy.special import stdtrit

    if not (crossings["reached"].all() and than["reached"].all()):
        return None
    fast, slow = _by_seed(crossings), _by_seed(than)
    if min(len(fast), len(slow)) < MIN_SEEDS:
        return None
    common = fast.index.intersection(slow.index)
    if len(common) >= MIN_SEEDS:
        logs, seeds = (slow - fast)[common], len(common)
        mean, error, freedom = logs.mean(), logs.std() / np.sqrt(seeds), seeds - 1
    else:
        seeds, mean = min(len(fast), len(slow)), slow.mean() - fast.mean()
        parts = np.array([each.var() / len(each) for each in (fast, slow)])
        error = np.sqrt(parts.sum())
        weights = parts**2 / (np.array([len(fast), len(slow)]) - 1)
        freedom = parts.sum() ** 2 / weights.sum() if error else 1.0
    half = stdtrit(freedom, 1 - 0.025 / (among * (among - 1) / 2)) * error
    return SpeedUp(*np.exp([mean, mean - half, mean + half]).tolist(), seeds)


def _by_seed(crossings: pd.DataFrame) -> pd.Series:
    """Mean logarithm of the time of each seed."""
    seeds = [object() if pd.isna(seed) or isinstance(seed, str) else seed for seed in crossings["seed"]]  # "none"
    return np.log(crossings["time_to_target_s"].astype(float)).groupby(np.array(seeds, object), sort=False).mean()

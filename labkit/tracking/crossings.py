"""When a run first reached a target, and when it did so for good: while it trains, and afterwards for any target."""

from __future__ import annotations

import numpy as np

CONFIRM = 2
"""Evaluations in a row that confirm a target, unless a run says otherwise."""


def crossing(
    values: np.ndarray,
    counts: np.ndarray,
    targets: np.ndarray,
    confirm: np.ndarray | int = 1,
    *,
    higher_is_better: bool,
) -> np.ndarray:
    """Which evaluation of runs reached each target; nothing is interpolated.

    With `confirm` 1 that is the *first* crossing, with a run's own `confirm_evaluations` the *sustained* one, which one
    lucky evaluation does not make. A run that trains asks after each of its evaluations.

    Args:
        values: (N,) evaluations, run after run, each run's in order; one that is not a number reaches nothing.
        counts: (R,) how many of them are of each run.
        targets: (L,).
        confirm: (R,) or one number: evaluations in a row, all at or past the target, of which the first counts.
        higher_is_better: direction of the metric.

    Returns:
        (L, R) places among each run's evaluations; -1 where it did not reach the target so.

    >>> crossing([0.7, 0.9, 0.6, 0.8, 0.9, 0.9], [5, 1], [0.8, 0.95], [2, 1], higher_is_better=True)
    array([[ 3,  0],
           [-1, -1]])
    """
    sign = 1 if higher_is_better else -1
    values, targets, counts = np.asarray(values, float), np.asarray(targets, float), np.asarray(counts)
    run, ends = np.repeat(np.arange(len(counts)), counts), np.cumsum(counts)
    order = np.argsort(sign * targets)
    passed = np.searchsorted(sign * targets[order], np.where(np.isnan(values), -np.inf, sign * values), side="right")
    needed, least = np.broadcast_to(confirm, len(counts))[run], passed  # each passes so many of the targets
    for step in range(1, max(needed, default=1)):
        later = np.append(passed[step:], np.zeros(min(step, len(passed)), int))
        later[np.arange(len(later)) + step >= ends[run]] = 0
        least = np.where(needed > step, np.minimum(least, later), least)
    # one sorted column for all runs: the most targets passed so far, above whatever an earlier run passed
    best = np.maximum.accumulate(run * (len(targets) + 1) + least)
    wanted = np.arange(len(counts)) * (len(targets) + 1) + np.arange(1, len(targets) + 1)[:, None]
    place = np.searchsorted(best, wanted)
    found = np.empty(place.shape, int)
    found[order] = np.where(place < ends, place - (ends - counts), -1)
    return found

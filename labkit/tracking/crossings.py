"""When a run first reached its target, and when it did so for good: while it trains, and afterwards for any target."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from labkit.tracking.goal import Target

CONFIRM = 2
"""Evaluations in a row that confirm a target, unless a run says otherwise."""


def crossing(values: np.ndarray, targets: np.ndarray, confirm: int = 1, *, higher_is_better: bool) -> np.ndarray:
    """Which evaluation of a finished curve reached each target; nothing is interpolated.

    With `confirm` 1 that is the first crossing, with the run's own `confirm_evaluations` the sustained one, exactly as
    `Crossings` finds them while the run trains.

    Args:
        values: (E,) evaluations in order; one that is not a number reaches nothing.
        targets: (L,).
        confirm: evaluations in a row, all at or past the target, of which the first counts.
        higher_is_better: direction of the metric.

    Returns:
        (L,) places in `values`; E where the target was not reached so.

    >>> crossing(np.array([0.7, 0.9, 0.6, 0.8, 0.9]), np.array([0.8, 0.95]), 2, higher_is_better=True)
    array([3, 5])
    """
    sign = 1 if higher_is_better else -1
    values, targets = np.asarray(values, float), np.asarray(targets, float)
    if len(values) < confirm:
        return np.full(len(targets), len(values))
    worst = np.where(np.isnan(values), -np.inf, sign * values)
    if confirm > 1:
        worst = np.lib.stride_tricks.sliding_window_view(worst, confirm).min(axis=-1)
    found = np.maximum.accumulate(worst).searchsorted(sign * targets, side="left")
    found[found == len(worst)] = len(values)
    return found


@dataclass(frozen=True)
class Point:
    """Where in a run an evaluation took place."""

    step: int
    samples: int
    wall_s: float
    """Seconds of training, evaluation and checkpoints since the first step."""
    train_s: float
    """Seconds of training alone."""


class Crossings:
    """Watches the evaluations of one run.

    The *first* crossing is the first evaluation at or past the target. The *sustained* one begins the streak of
    `confirm` evaluations in a row that are all at or past it, so that one lucky evaluation does not count.
    """

    def __init__(self, target: Target | None, confirm: int):
        self.target, self.confirm = target, confirm
        self.first: Point | None = None
        self.sustained: Point | None = None
        self._streak: list[Point] = []

    def observe(self, value: float, point: Point) -> list[str]:
        """Take one evaluation; return which of "first" and "sustained" it completed."""
        if self.target is None:
            return []
        if not self.target.reached(value):
            self._streak = []
            return []
        self._streak.append(point)
        completed = []
        if self.first is None:
            self.first = point
            completed.append("first")
        if self.sustained is None and len(self._streak) >= self.confirm:
            self.sustained = self._streak[0]
            completed.append("sustained")
        return completed

    def state_dict(self) -> dict:
        return {
            "first": self.first and asdict(self.first),
            "sustained": self.sustained and asdict(self.sustained),
            "streak": [asdict(point) for point in self._streak],
        }

    def load_state_dict(self, state: dict) -> None:
        self.first = state["first"] and Point(**state["first"])
        self.sustained = state["sustained"] and Point(**state["sustained"])
        self._streak = [Point(**point) for point in state["streak"]]

"""When a run first reached its target, and from when on it stayed there."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from labkit.tracking.goal import Target


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

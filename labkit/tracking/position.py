"""Where a run is: all of it that is numbers."""

from __future__ import annotations

from dataclasses import dataclass, field

from labkit.tracking.crossings import Point


@dataclass
class Position:
    """Everything that changes while a run goes on, apart from tensors."""

    epoch: int = 0
    """Epochs that are over"""
    batch: int = 0
    """Batches of this epoch that were trained on"""
    step: int = 0
    samples: int = 0
    wall_s: float = 0.0
    """Seconds since the clock started: training, evaluations, checkpoints, bookkeeping"""
    train_s: float = 0.0
    """Seconds of training alone"""
    next_evaluation: int = 0
    """Samples at which an evaluation is due"""
    evaluated_step: int = -1
    best_metric: str | None = None
    """By which the best is the best"""
    best_value: float | None = None
    best_step: int | None = None
    best_age: int = 0
    """Evaluations since the best one"""
    metrics: dict[str, float] = field(default_factory=dict)
    """The latest evaluation"""

    @property
    def point(self) -> Point:
        return Point(self.step, self.samples, self.wall_s, self.train_s)

    @property
    def tested_step(self) -> int:
        """The step whose weights are to be tested: the best, or the last where nothing says which are better."""
        return self.step if self.best_step is None else self.best_step

    @property
    def samples_per_s(self) -> float:
        return self.samples / self.train_s if self.train_s else 0.0

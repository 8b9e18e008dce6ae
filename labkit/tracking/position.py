"""Where a run is: all of it that is numbers."""

from __future__ import annotations

import time
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


class Clock:
    """Books the time that passes to a position: all of it is wall time, that of training is training time, too."""

    def __init__(self, position: Position):
        self._position = position
        self._at: float | None = None

    @property
    def is_running(self) -> bool:
        return self._at is not None

    def start(self, at: float | None = None) -> None:
        """Start now, or as if at that moment of `time.perf_counter`."""
        self._at = time.perf_counter() if at is None else at

    def book(self, *, training: bool) -> None:
        """Book what has passed since the last time."""
        now = time.perf_counter()
        self._position.wall_s += now - self._at
        if training:
            self._position.train_s += now - self._at
        self._at = now

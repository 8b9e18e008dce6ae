"""What a run has taken so far: its clock, its steps, and their losses, told to whoever watches."""

from __future__ import annotations

import contextlib
import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from labkit.errors import UserError
from labkit.tracking.events import OnEvent, Point, Progress
from labkit.tracking.phases import SYNC, phase
from labkit.tracking.recording import Recording

TELL_EVERY_S = 0.25
"""So often listeners are told of steps; of evaluations always."""


@dataclass
class Position:
    """Where a run is: everything that changes while it goes on, apart from tensors."""

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
    keeps_best: bool = True
    """Whether the best weights are kept, to be tested; else those of the last step are"""
    best_age: int = 0
    """Evaluations since one was better than all before"""
    metrics: dict[str, float] = field(default_factory=dict)
    """The latest evaluation"""

    @property
    def point(self) -> Point:
        return Point(self.step, self.samples, self.wall_s, self.train_s)

    @property
    def tested_step(self) -> int:
        """The step whose weights are to be tested: the best, or the last where nothing says which are better."""
        return self.step if self.best_step is None or not self.keeps_best else self.best_step

    @property
    def samples_per_s(self) -> float:
        return self.samples / self.train_s if self.train_s else 0.0


class Meter:
    """Counts the steps of a run and books the time that passes to its position."""

    def __init__(self, position: Position, recording: Recording, diverged: Callable[[str, Point], Exception]):
        """`diverged` makes the error of a loss that is no number."""
        self.position, self._recording, self.diverged = position, recording, diverged
        self.listeners: list[OnEvent] = []
        self.loss = math.nan
        """The latest on the host"""
        self._on_their_way: deque[tuple[torch.Tensor, torch.cuda.Event | None, Point]] = deque()
        """Losses of steps; one on a GPU is copied beside the training, and read when it has arrived"""
        self._has_losses = False
        self._at: float | None = None
        self._told_at = 0.0

    @property
    def is_running(self) -> bool:
        return self._at is not None

    def start(self, at: float) -> None:
        """Start the clock, as if at that moment of `time.perf_counter`."""
        self._at = at

    def book(self, *, training: bool) -> None:
        """Book what has passed since the last time: all of it is wall time, that of training is training time, too."""
        now = time.perf_counter()
        self.position.wall_s += now - self._at
        if training:
            self.position.train_s += now - self._at
        self._at = now

    def step(self, loss: Any, samples: int, batch: int) -> None:
        """Count a step that has just been taken, the last so far of so many batches of its epoch."""
        self.book(training=True)
        position = self.position
        position.step += 1
        position.samples += samples
        position.batch = batch
        if loss is not None:
            self._has_losses = True
            self._take(loss, position.point)
        self.read_losses()
        now = time.perf_counter()
        if now - self._told_at >= TELL_EVERY_S:
            self._told_at = now
            if not self._has_losses:
                self._recording.metric("steps", position.step, position.point)
            self.tell(evaluated=False)

    def _take(self, loss: Any, point: Point) -> None:
        """Take a step's loss: a tensor of one number, on any device, or a number."""
        if not isinstance(loss, torch.Tensor):
            loss = torch.tensor(float(loss), dtype=torch.float64)
        if loss.numel() != 1:
            raise UserError(
                f"run.step got a loss of shape {tuple(loss.shape)}: give the one number of this step, for example "
                "loss.mean()."
            )
        host, arrived = loss.detach(), None
        if loss.is_cuda:
            host = torch.empty(loss.shape, dtype=loss.dtype, pin_memory=True)
            host.copy_(loss.detach(), non_blocking=True)
            arrived = torch.cuda.Event()
            arrived.record(torch.cuda.current_stream(loss.device))  # which need not be the current device
        self._on_their_way.append((host, arrived, point))

    def read_losses(self, *, wait: bool = False) -> None:
        """Record the losses that have reached the host, with `wait` all, and stop at the first that is no number."""
        with phase(SYNC) if wait else contextlib.nullcontext():
            while self._on_their_way:
                host, arrived, point = self._on_their_way[0]
                if arrived is not None and wait:
                    arrived.synchronize()
                elif arrived is not None and not arrived.query():
                    break
                self._on_their_way.popleft()
                self.loss = float(host)
                if not math.isfinite(self.loss):
                    what, at = f"the training loss is {self.loss}", replace(self.position.point, step=point.step)
                    raise self.diverged(what, at)
                self._recording.metric("loss", self.loss, point)

    def tell(self, *, evaluated: bool) -> None:
        """Tell where the run is."""
        position = self.position
        event = Progress(position.point, position.samples_per_s, self.loss, position.metrics, evaluated)
        self._recording.tell(event)
        for listener in self.listeners:
            listener(event)

"""The one training loop: steps, evaluations, checkpoints, and the reasons to end."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch

from labkit.runs.writer import RunWriter
from labkit.training.checkpoint import (
    cpu_weights,
    load_checkpoint,
    random_state,
    restore_random_state,
    save_checkpoint,
)
from labkit.training.config import TrainConfig
from labkit.training.crossings import Crossings, Point
from labkit.training.job import Job
from labkit.training.metrics import METRICS, Target
from labkit.training.optimisers import Optimisers
from labkit.training.precision import Precision
from labkit.training.stop import StopRequest

# Losses stay on the device for this many steps: reading one makes the CPU wait for the GPU.
STEPS_A_LOSS_READING = 10
# A checkpoint that took t seconds is not repeated before 20 t have passed: at most 5 % of a run goes into them.
CHECKPOINT_REST = 20


@dataclass(frozen=True)
class Progress:
    """What an onlooker is told: where the run is, and the latest evaluation."""

    point: Point
    samples_per_s: float
    """Training samples per second of training time."""
    loss: float
    metrics: dict[str, float]
    """The latest evaluation; empty before the first."""
    evaluated: bool
    """Whether that evaluation was made just now."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    status: str
    """"done", "stopped" or "failed"."""
    reason: str
    point: Point
    samples_per_s: float
    first_crossing: Point | None
    sustained_crossing: Point | None
    best_value: float | None
    """Best validation value of the target metric; None where no evaluation took place."""


@dataclass
class _Position:
    """Everything that changes while a run goes on, apart from tensors."""

    epoch: int = 0
    batch: int = 0
    step: int = 0
    samples: int = 0
    wall_s: float = 0.0
    train_s: float = 0.0
    next_evaluation: int = 0
    evaluated_step: int = -1
    best_value: float | None = None
    best_age: int = 0
    metrics: dict[str, float] = field(default_factory=dict)

    @property
    def point(self) -> Point:
        return Point(self.step, self.samples, self.wall_s, self.train_s)


class Diverged(Exception):
    """The loss or the metric is no longer a number."""


class Loop:
    """Trains one job to its target, or to another end, writing into one run folder."""

    def __init__(
        self,
        job: Job,
        config: TrainConfig,
        run: RunWriter,
        *,
        device: torch.device,
        precision: Precision,
        stop: StopRequest,
        on_progress: Callable[[Progress], None],
    ):
        self.job, self.config, self.run = job, config, run
        self.device, self.precision, self.stop, self.on_progress = device, precision, stop, on_progress
        total_steps = job.num_batches(0) * config.max_epochs
        self.optimisers = Optimisers(job.model, job.sparse_parameters, config, total_steps)
        target = None if config.target is None else Target(METRICS[config.target_metric], config.target)
        self.crossings = Crossings(target, config.confirm_evaluations)
        self.metric = METRICS[config.target_metric]
        self.position = _Position(next_evaluation=config.evaluate_every_samples)
        self._losses: list[torch.Tensor] = []
        self._loss = math.nan
        self._checkpoint_at_s, self._checkpoint_took_s = 0.0, 0.0

    @property
    def latest(self) -> Path:
        return self.run.folder / "checkpoint" / "latest.pt"

    @property
    def best(self) -> Path:
        return self.run.folder / "checkpoint" / "best.pt"

    def resume(self) -> None:
        """Go on from the folder's latest checkpoint: model, optimisers, random state, data order, clocks."""
        content = load_checkpoint(self.latest)
        self.job.model.load_state_dict(content["model"])
        self.optimisers.load_state_dict(content["optimisers"])
        if content["target"] == [self.config.target_metric, self.config.target]:
            self.crossings.load_state_dict(content["crossings"])
        self.position = _Position(**content["position"])
        restore_random_state(content["random"], self.device)

    def fit(self) -> Outcome:
        """Train until the target is reached and confirmed, a limit is met, a stop is requested, or the loss is NaN."""
        self._clock = time.perf_counter()
        try:
            status, reason = self._train()
            if status == "done" and self.position.evaluated_step != self.position.step:
                self._evaluate()
            self._save_latest()
        except Diverged as error:
            status, reason = "failed", str(error)
        self.run.flush()
        position = self.position
        return Outcome(
            status=status,
            reason=reason,
            point=position.point,
            samples_per_s=self._samples_per_s(),
            first_crossing=self.crossings.first,
            sustained_crossing=self.crossings.sustained,
            best_value=position.best_value,
        )

    def _train(self) -> tuple[str, str]:
        config, job, position = self.config, self.job, self.position
        end = self._reason_to_end()
        while end is None:
            job.model.train()
            for batch, samples in job.batches(position.epoch, position.batch):
                self._step(batch)
                position.step += 1
                position.batch += 1
                position.samples += samples
                self._tick(training=True)
                if len(self._losses) >= STEPS_A_LOSS_READING:
                    self._read_losses()
                if position.samples >= position.next_evaluation:
                    self._evaluate()
                    position.next_evaluation = position.samples + config.evaluate_every_samples
                    self._save_latest(rest=True)
                end = self._reason_to_end()
                if end is not None:
                    break
            if position.batch >= job.num_batches(position.epoch):
                position.epoch, position.batch = position.epoch + 1, 0
                self.run.event("epoch", epoch=position.epoch, **asdict(position.point))
                end = end or self._reason_to_end()
        return end

    def _step(self, batch: object) -> None:
        with self.precision.autocast(self.device):
            loss = self.job.loss(batch)
        loss.backward()
        self.optimisers.step(self.position.step)
        self._losses.append(loss.detach())

    def _reason_to_end(self) -> tuple[str, str] | None:
        config, position = self.config, self.position
        if self.stop:
            return "stopped", f"stopped by {self.stop.reason}"
        if self.crossings.sustained is not None:
            return "done", "target reached"
        if config.max_seconds is not None and position.wall_s >= config.max_seconds:
            return "done", f"max_seconds {config.max_seconds:g} used up"
        if position.epoch >= config.max_epochs:
            return "done", f"max_epochs {config.max_epochs} trained"
        if config.patience_evaluations is not None and position.best_age >= config.patience_evaluations:
            return "done", f"no better {self.metric.label} in {config.patience_evaluations} evaluations"
        return None

    def _evaluate(self) -> None:
        position = self.position
        self._read_losses()
        self.job.model.eval()
        with torch.inference_mode(), self.precision.autocast(self.device):
            metrics = self.job.evaluate(self.job.model, "validation")
        self.job.model.train()
        self._tick(training=False)
        value = metrics[self.metric.name]
        if not math.isfinite(value):
            raise Diverged(self._divergence(f"the validation {self.metric.label} is {value}", position.step))
        position.metrics, position.evaluated_step = metrics, position.step
        for name, number in metrics.items():
            self._record(name, number)
        completed = self.crossings.observe(value, position.point)
        self.run.event(
            "evaluated",
            metric=self.metric.name,
            value=value,
            metrics=metrics,
            loss=self._loss,
            samples_per_s=self._samples_per_s(),
            **asdict(position.point),
        )
        for kind in completed:
            at = self.crossings.first if kind == "first" else self.crossings.sustained
            self.run.event(
                "target_reached", kind=kind, metric=self.metric.name, target=self.config.target, **asdict(at)
            )
        if position.best_value is None or self.metric.better(value, position.best_value):
            position.best_value, position.best_age = value, 0
            save_checkpoint(self.best, {"model": cpu_weights(self.job.model), "position": asdict(position)})
        else:
            position.best_age += 1
        self._report(evaluated=True)
        self._tick(training=False)

    def _save_latest(self, *, rest: bool = False) -> None:
        """Save what `resume` needs; with `rest`, not so often that saving costs more than its share."""
        began = time.perf_counter()
        if rest and began - self._checkpoint_at_s < CHECKPOINT_REST * self._checkpoint_took_s:
            return
        self._read_losses()
        save_checkpoint(
            self.latest,
            {
                "model": cpu_weights(self.job.model),
                "optimisers": self.optimisers.state_dict(),
                "crossings": self.crossings.state_dict(),
                "target": [self.config.target_metric, self.config.target],
                "position": asdict(self.position),
                "random": random_state(self.device),
            },
        )
        self._checkpoint_at_s = time.perf_counter()
        self._checkpoint_took_s = self._checkpoint_at_s - began
        self._tick(training=False)
        self.run.event("checkpoint", path="checkpoint/latest.pt", **asdict(self.position.point))

    def _read_losses(self) -> None:
        """Bring the latest losses to the CPU, record them, and stop at the first that is not a number."""
        if not self._losses:
            return
        losses = torch.stack(self._losses).tolist()
        self._losses = []
        self._tick(training=True)  # the wait for the device belongs to the training it waited for
        first = self.position.step - len(losses)
        for offset, loss in enumerate(losses):
            if not math.isfinite(loss):
                raise Diverged(self._divergence(f"the training loss is {loss}", first + offset + 1))
        for offset, loss in enumerate(losses):
            self._record("loss", loss, step=first + offset + 1)
        self._loss = losses[-1]
        self._report(evaluated=False)

    def _report(self, *, evaluated: bool) -> None:
        position = self.position
        self.on_progress(Progress(position.point, self._samples_per_s(), self._loss, position.metrics, evaluated))

    def _record(self, name: str, value: float, step: int | None = None) -> None:
        point = asdict(self.position.point)
        point["step"] = self.position.step if step is None else step
        self.run.metric(name=name, value=value, **point)

    def _divergence(self, what: str, step: int) -> str:
        lr = self.optimisers.lr_at(step - 1)
        saved = "none was saved yet"
        if self.latest.exists():
            saved = f"{self.latest}, of step {load_checkpoint(self.latest)['position']['step']}"
        self.run.event("fault", what=what, lr=lr, checkpoint=saved, **asdict(self.position.point) | {"step": step})
        return f"{what} at step {step} with learning rate {lr:g}; last good checkpoint: {saved}"

    def _samples_per_s(self) -> float:
        return self.position.samples / self.position.train_s if self.position.train_s else 0.0

    def _tick(self, *, training: bool) -> None:
        """Book the time since the last tick: all of it is wall time, that of training is training time too."""
        now = time.perf_counter()
        self.position.wall_s += now - self._clock
        if training:
            self.position.train_s += now - self._clock
        self._clock = now

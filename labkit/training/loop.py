"""The one training loop: steps, evaluations, checkpoints, and the reasons to end."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

from labkit.runs import read_events
from labkit.runs.writer import RunWriter
from labkit.training.checkpoint import Checkpoints, cpu_weights, random_state, restore_random_state, step_of
from labkit.training.config import TrainConfig
from labkit.training.crossings import Crossings, Point
from labkit.training.job import Job
from labkit.training.metrics import METRICS, Target
from labkit.training.observer import StepObserver
from labkit.training.phases import INPUT, SYNC, phase
from labkit.training.step import StepKind, TrainStep
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
    best_step: int | None = None
    best_age: int = 0
    """Evaluations since the best one."""
    metrics: dict[str, float] = field(default_factory=dict)

    @property
    def point(self) -> Point:
        return Point(self.step, self.samples, self.wall_s, self.train_s)


class Diverged(Exception):
    """The loss, a metric or a weight is no longer a number."""


class Loop:
    """Trains one job to its target, or to another end, writing into one run folder."""

    def __init__(
        self,
        job: Job,
        config: TrainConfig,
        run: RunWriter,
        *,
        device: torch.device,
        kind: StepKind,
        stop: StopRequest,
        on_progress: Callable[[Progress], None],
        observer: StepObserver | None = None,
    ):
        self.job, self.config, self.run = job, config, run
        self.device, self.kind, self.stop, self.on_progress = device, kind, stop, on_progress
        self.observer = observer
        self._step = TrainStep(job, config, kind, device)
        self.optimisers = self._step.optimisers
        target = None if config.target is None else Target(METRICS[config.target_metric], config.target)
        self.crossings = Crossings(target, config.confirm_evaluations)
        self.metric = METRICS[config.target_metric]
        self.position = _Position(next_evaluation=config.evaluate_every_samples)
        self.checkpoints = Checkpoints(run.folder)
        self._replayed_step = -1
        self._announced: set[tuple] = set()
        self._losses: list[tuple[torch.Tensor, Point]] = []
        self._loss = math.nan
        self._checkpoint_at_s, self._checkpoint_took_s = 0.0, 0.0

    def resume(self) -> None:
        """Go on from the folder's latest checkpoint: model, optimisers, random state, data order, clocks.

        The target may be another one by now: it is looked for in the evaluations there were, too.
        """
        content = self.checkpoints.load_latest()
        self.job.model.load_state_dict(content["model"])
        self.optimisers.load_state_dict(content["optimisers"])
        restore_random_state(content["random"], self.device)
        self.position = position = _Position(**content["position"])
        metric, target = content["target"]
        if metric != self.metric.name:
            # nothing is the best by this metric yet; a run that ends at once is evaluated for it first
            position.best_value, position.best_step, position.best_age, position.evaluated_step = None, None, 0, -1
        if (metric, target) == (self.metric.name, self.config.target):
            self.crossings.load_state_dict(content["crossings"])
        else:
            past = read_events(self.run.folder)
            self._announced = {_crossing_key(event) for event in past if event["event"] == "target_reached"}
            for event in past:
                if event["event"] == "evaluated":
                    at = Point(*(event[name] for name in ("step", "samples", "wall_s", "train_s")))
                    self._observe(event["metrics"][self.metric.name], at)
                    self._replayed_step = at.step
        if position.best_age >= (self.config.patience_evaluations or math.inf):
            position.best_age = 0  # this run ended for want of patience: who resumes it has some more

    def fit(self) -> Outcome:
        """Train until the target is reached and confirmed, a limit is met, a stop is requested, or the loss is NaN."""
        self._clock = time.perf_counter()
        try:
            status, reason = self._train()
            if self.observer is None:
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
            for batch, samples in self._batches():
                loss = self._step(batch, position.step)
                position.step += 1
                position.batch += 1
                position.samples += samples
                self._tick(training=True)
                self._losses.append((loss, position.point))
                if len(self._losses) >= STEPS_A_LOSS_READING:
                    self._read_losses()
                if position.samples >= position.next_evaluation:
                    self._evaluate()
                    position.next_evaluation = position.samples + config.evaluate_every_samples
                    self._save_latest(rest=True)
                end = self._reason_to_end()
                if self.observer is not None and self.observer.step():
                    end = end or ("done", "profiled")
                if end is not None:
                    break
            if position.batch >= job.num_batches(position.epoch):
                position.epoch, position.batch = position.epoch + 1, 0
                self.run.event("epoch", epoch=position.epoch, **asdict(position.point))
                end = end or self._reason_to_end()
        return end

    def _batches(self) -> Iterator[tuple[Any, int]]:
        """What is left of this epoch."""
        batches = self.job.batches(self.position.epoch, self.position.batch)
        while True:
            with phase(INPUT):
                batch = next(batches, None)
            if batch is None:
                return
            yield batch

    def _reason_to_end(self) -> tuple[str, str] | None:
        config, position = self.config, self.position
        if self.stop:
            return "stopped", f"stopped by {self.stop.reason}"
        if self.run.stop_requested:
            return "stopped", "stopped on request"
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
        self._check_weights()
        self.job.model.eval()
        with torch.inference_mode(), self.kind.autocast(self.device):
            metrics = self.job.evaluate(self.job.model, "validation")
        self.job.model.train()
        self._tick(training=False)
        for name, number in metrics.items():
            if not math.isfinite(number):
                raise Diverged(self._divergence(f"the validation {METRICS[name].label} is {number}", position.step))
        value = metrics[self.metric.name]
        position.metrics, position.evaluated_step = metrics, position.step
        if position.step != self._replayed_step:  # else these weights were evaluated before the resume
            self._record_evaluation(value, metrics)
        if position.best_value is None or self.metric.better(value, position.best_value):
            position.best_value, position.best_step, position.best_age = value, position.step, 0
            self.checkpoints.save_best({"model": cpu_weights(self.job.model), "position": asdict(position)})
        else:
            position.best_age += 1
        self._report(evaluated=True)
        self._tick(training=False)

    def _record_evaluation(self, value: float, metrics: dict[str, float]) -> None:
        at = self.position.point
        for name, number in metrics.items():
            self.run.metric(name=name, value=number, **asdict(at))
        speed = {"loss": self._loss, "samples_per_s": self._samples_per_s()}
        self.run.event("evaluated", metric=self.metric.name, value=value, metrics=metrics, **speed, **asdict(at))
        self._observe(value, at)

    def _observe(self, value: float, at: Point) -> None:
        """Watch for the target in an evaluation made at that point."""
        for kind in self.crossings.observe(value, at):
            crossing = self.crossings.first if kind == "first" else self.crossings.sustained
            what = {"kind": kind, "metric": self.metric.name, "target": self.config.target, **asdict(crossing)}
            if _crossing_key(what) not in self._announced:
                self.run.event("target_reached", **what)

    def _save_latest(self, *, rest: bool = False) -> None:
        """Save what `resume` needs; with `rest`, not so often that saving costs more than its share."""
        began = time.perf_counter()
        if rest and began - self._checkpoint_at_s < CHECKPOINT_REST * self._checkpoint_took_s:
            return
        self._read_losses()
        if self.position.evaluated_step != self.position.step:
            self._check_weights()  # an evaluation has just done so
        self.run.flush()  # whoever resumes from here repeats no earlier step, so its rows must be on disk
        self.checkpoints.save_latest(
            {
                "model": cpu_weights(self.job.model),
                "optimisers": self.optimisers.state_dict(),
                "crossings": self.crossings.state_dict(),
                "target": [self.config.target_metric, self.config.target],
                "position": asdict(self.position),
                "random": random_state(self.device),
            }
        )
        self._checkpoint_at_s = time.perf_counter()
        self._checkpoint_took_s = self._checkpoint_at_s - began
        self._tick(training=False)
        self.run.event("checkpoint", path="checkpoint/latest.pt", **asdict(self.position.point))

    def _read_losses(self) -> None:
        """Bring the latest losses to the CPU, record them, and stop at the first that is not a number."""
        if not self._losses:
            return
        tensors, points = zip(*self._losses, strict=True)
        with phase(SYNC):
            losses = torch.stack(tensors).tolist()
        self._losses = []
        self._tick(training=True)  # the wait for the device belongs to the training it waited for
        for loss, point in zip(losses, points, strict=True):
            if not math.isfinite(loss):
                raise Diverged(self._divergence(f"the training loss is {loss}", point.step))
            self.run.metric(name="loss", value=loss, **asdict(point))
        self._loss = losses[-1]
        self._report(evaluated=False)

    def _check_weights(self) -> None:
        """Let no weights through that are not numbers: an error rate, for one, stays finite with them."""
        tensors = [t for t in self.job.model.state_dict().values() if t.is_floating_point()]
        # a sum is a number only if all its terms are, and unlike isfinite() it makes no mask as large as a table
        if not torch.stack([tensor.sum() for tensor in tensors]).isfinite().all():
            raise Diverged(self._divergence("a weight is no number", self.position.step))

    def _report(self, *, evaluated: bool) -> None:
        position = self.position
        self.on_progress(Progress(position.point, self._samples_per_s(), self._loss, position.metrics, evaluated))

    def _divergence(self, what: str, step: int) -> str:
        lr = self.optimisers.lr_at(step - 1)
        latest = self.checkpoints.latest
        saved = f"{latest}, of step {step_of(latest)}" if latest.exists() else "none was saved yet"
        at = asdict(self.position.point) | {"step": step}
        self.run.event("fault", kind="diverged", what=what, lr=lr, checkpoint=saved, **at)
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


def _crossing_key(event: dict) -> tuple:
    """What makes two announcements of a crossing the same."""
    return tuple(event[name] for name in ("kind", "metric", "target", "step"))

"""What the evaluations of a run say: is the target reached, is this the best so far, is patience at its end."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from labkit.errors import UserError
from labkit.tracking.crossings import crossing
from labkit.tracking.events import Point
from labkit.tracking.goal import METRICS, Goal
from labkit.tracking.meter import Meter
from labkit.tracking.recording import Recording


class Evaluations:
    """Watches the target's metric; of a run without a target, nothing."""

    def __init__(self, goal: Goal, meter: Meter, recording: Recording):
        self.goal, self.target, self._meter, self._recording = goal, goal.target, meter, recording
        self.position = meter.position
        self._confirm = {"first": 1, "sustained": goal.confirm}
        self._values: list[float] = []
        self._points: list[Point] = []
        self.crossed: dict[str, Point] = {}
        """The first and the sustained crossing of the target, as far as they are there"""
        self._announced: set[str] = set()
        self._replayed_step = -1

    def numbers(self, metrics: dict[str, Any]) -> dict[str, float]:
        """The metrics as numbers; a UserError for one that is none, and the end of a run for one without end."""
        numbers = {}
        for name, value in metrics.items():
            try:
                numbers[name] = float(value.detach() if hasattr(value, "detach") else value)
            except (TypeError, ValueError):
                raise UserError(
                    f"metric {name!r} is {value!r}: give one number, for example {name}=value.item()."
                ) from None
            if not math.isfinite(numbers[name]):
                raise self._meter.diverged(f"the metric {name} is {numbers[name]}", self.position.point)
        return numbers

    def check(self, metrics: dict[str, Any]) -> None:
        """Refuse metrics without the target's, or with a value that one cannot take."""
        for name, value in metrics.items():
            if name in METRICS:
                METRICS[name].refuse_beyond(value)
        if self.target is not None and self.target.metric.name not in metrics:
            given = f"run.evaluate got {', '.join(metrics)}" if metrics else "run.evaluate got no metric"
            name = self.target.metric.name
            raise UserError(f"{given}, and the target {self.target} needs {name}: pass {name}=... too.")

    def take(self, numbers: dict[str, float]) -> bool:
        """Record an evaluation's metrics at the position; whether none was better so far.

        Of equals the later is the best: it has learnt longer, often at a lower learning rate.
        """
        position = self.position
        position.metrics, position.evaluated_step = numbers, position.step
        is_new = position.step != self._replayed_step  # else these weights were evaluated before a resume
        name = self.target and self.target.metric.name
        if is_new:
            for each, number in numbers.items():
                self._recording.metric(each, number, position.point)
            told = {"metric": name, "value": numbers.get(name), "metrics": numbers, "loss": self._meter.loss}
            told |= {"samples_per_s": position.samples_per_s, **asdict(position.point)}
            self._recording.event("evaluated", **told)
        if self.target is None:
            return False
        value = numbers[name]
        if is_new:
            self._observe(value, position.point)
        better, best = self.target.metric.better, position.best_value
        position.best_age = 0 if best is None or better(value, best) else position.best_age + 1
        if best is not None and better(best, value):
            return False
        position.best_metric, position.best_value, position.best_step = name, value, position.step
        return True

    def result(self) -> dict[str, Any]:
        """What the run has come to."""
        first, sustained, position = self.crossed.get("first"), self.crossed.get("sustained"), self.position
        has_value = self.target is not None and self.target.value is not None
        return {
            "target_reached": first is not None if has_value else None,
            "time_to_target_s": first and first.wall_s,
            "samples_to_target": first and first.samples,
            "sustained_time_to_target_s": sustained and sustained.wall_s,
            "samples_per_s": position.samples_per_s if position.samples else None,
            "best_validation": position.best_value,
            "samples": position.samples,
            "steps": position.step,
            "wall_s": position.wall_s,
            "train_s": position.train_s,
        }

    @property
    def out_of_patience(self) -> bool:
        return self.goal.patience is not None and self.position.best_age >= self.goal.patience

    def resume(self, past: list[dict[str, Any]]) -> None:
        """Look for the target of now, which may be another one, in the evaluations of earlier processes of this run."""
        position = self.position
        if self.target is None:
            return
        metric, value = self.target.metric.name, self.target.value
        if position.best_metric != metric:
            # nothing is the best by this metric yet; a run that ends at once is evaluated for it first
            position.best_value, position.best_step, position.best_age, position.evaluated_step = None, None, 0, -1
        if self.out_of_patience:
            position.best_age = 0  # this run ended for want of patience: who resumes it has some more
        told = (event for event in past if event["event"] == "target_reached")
        self._announced = {each["kind"] for each in told if (each["metric"], each["target"]) == (metric, value)}
        for event in past:
            if event["event"] == "evaluated" and metric in event["metrics"]:
                at = Point(*(event[name] for name in ("step", "samples", "wall_s", "train_s")))
                self._observe(event["metrics"][metric], at)
                self._replayed_step = at.step

    def _observe(self, value: float, point: Point) -> None:
        """Look for crossings with one evaluation more."""
        self._values.append(value)
        self._points.append(point)
        if self.target.value is None:
            return
        for kind in [kind for kind in self._confirm if kind not in self.crossed]:
            up, count = self.target.metric.higher_is_better, len(self._values)
            at = crossing(self._values, [count], [self.target.value], self._confirm[kind], higher_is_better=up).item()
            if at >= 0:
                self.crossed[kind] = self._points[at]
                what = {"kind": kind, "metric": self.target.metric.name, "target": self.target.value}
                if kind not in self._announced:
                    self._recording.event("target_reached", **what, **asdict(self._points[at]))

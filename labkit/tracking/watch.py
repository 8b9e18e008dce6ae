"""Watches the evaluations of a run: which is the best so far, whether the target is reached, why the run is over."""

import math
from dataclasses import asdict
from typing import Any

import numpy as np

from labkit import UserError, errors, runs
from labkit.tracking.ending import Diverged, Enough, Stopped, script_refusal
from labkit.tracking.events import Point
from labkit.tracking.goal import METRICS, Goal, crossing
from labkit.tracking.log import RunLog
from labkit.tracking.position import Meter
from labkit.tracking.values import real


class Watch:
    """Watches what ends a run: its target, if it has one, a stop request, its time, its epochs, or its patience."""

    def __init__(self, goal: Goal, meter: Meter, log: RunLog):
        self.goal, self.target, self.position, self._meter, self._log = goal, goal.target, meter.position, meter, log
        self._are_several = log.ranks is not None and log.ranks.exchanges
        if log.ranks is not None:
            log.ranks.own_reason = self._own_reason
        self._confirm = {"first": 1, "sustained": goal.confirm}
        self._values: list[float] = []
        self._points: list[Point] = []
        self._announced: set[str] = set()
        self._replayed_step = -1

    def numbers(self, metrics: dict[str, Any]) -> dict[str, float]:
        """The metrics as numbers. Raises UserError for one that is not a number, and `Diverged` for NaN or infinity."""
        numbers = {}
        for name, value in metrics.items():
            numbers[name] = real(value, f"metric {name}")
            if not math.isfinite(numbers[name]):
                raise self._meter.diverged(f"the metric {name} is {numbers[name]}", self.position.point)
        return numbers

    def check(self, metrics: dict[str, Any]) -> None:
        """Refuse metrics that lack the target's metric, or have an impossible value."""
        for name, value in metrics.items():
            if name in METRICS:
                METRICS[name].refuse_beyond(value)
        if self.target is not None and self.target.metric.name not in metrics:
            given = f"run.evaluate got {', '.join(metrics)}" if metrics else "run.evaluate got no metric"
            name = self.target.metric.name
            raise UserError(f"{given}, but the target {self.target} needs {name}: also pass {name}=...")

    def take(self, numbers: dict[str, float]) -> bool:
        """Record the metrics of an evaluation. Returns whether it is the best so far.

        On a tie the later evaluation is the best: it has trained longer, often at a lower learning rate.
        """
        position = self.position
        position.metrics, position.evaluated_step = numbers, position.step
        is_new = position.step != self._replayed_step  # otherwise these weights were evaluated before a resume
        name = self.target.metric.name if self.target is not None else ""
        if is_new:
            for each, number in numbers.items():
                self._log.metric(each, number, position.point)
            content = {"metric": name or None, "value": numbers.get(name), "metrics": numbers, "loss": self._meter.loss}
            content |= {"samples_per_s": position.samples_per_s, **asdict(position.point)}
            self._log.event("evaluated", **content)
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
        position = self.position
        first, sustained = position.crossed.get("first"), position.crossed.get("sustained")
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

    def resume(self, past: list[dict[str, Any]]) -> None:
        """Look for the current target, which may have changed, in evaluations by earlier processes of this run."""
        position = self.position
        if self.target is None:
            return
        metric, value = self.target.metric.name, self.target.value
        if position.best_metric != metric:
            # there is no best by this metric yet, and a run that ends at once must be evaluated for it first
            position.best_value, position.best_step, position.best_age, position.evaluated_step = None, None, 0, -1
        if self.goal.is_out_of_patience(position.best_age):
            position.best_age = 0  # it ended for lack of patience, so a resume starts counting again
        reached = (event for event in past if event["event"] == "target_reached")
        self._announced = {each["kind"] for each in reached if (each["metric"], each["target"]) == (metric, value)}
        for event in past:
            if event["event"] == "evaluated" and metric in event["metrics"]:
                at = Point(*(event[name] for name in ("step", "samples", "wall_s", "train_s")))
                self._observe(event["metrics"][metric], at)
                self._replayed_step = at.step

    def _observe(self, value: float, point: Point) -> None:
        """Look for crossings after one more evaluation."""
        self._values.append(value)
        self._points.append(point)
        target = errors.certain(self.target)
        if target.value is None:
            return
        values = np.array(self._values)
        for kind in [kind for kind in self._confirm if kind not in self.position.crossed]:
            count, goal, up = np.array([len(values)]), np.array([target.value]), target.metric.higher_is_better
            at = crossing(values, count, goal, self._confirm[kind], higher_is_better=up).item()
            if at >= 0:
                self.position.crossed[kind] = self._points[at]
                what = {"kind": kind, "metric": target.metric.name, "target": target.value}
                if kind not in self._announced:
                    self._log.event("target_reached", **what, **asdict(self._points[at]))

    # the end

    def agree(self) -> None:
        """Let several ranks take the first one's reason.

        Their clocks differ, and a rank that left its loop alone would let the others hang. So a stop request or a time
        limit also counts from the step on that all of them have taken.
        """
        if self._are_several:
            self.position.agreed = errors.certain(self._log.ranks).first_says(self._own_reason())

    @property
    def over(self) -> str:
        """The value of `Run.over`."""
        if self._are_several:
            return self.position.agreed or "max_epochs" * self._epochs_are_over
        return self._own_reason()

    def _own_reason(self) -> str:
        if self.position.seen_enough:
            return "profiled"
        if self._log.stopped_by:
            return "stopped"
        if "sustained" in self.position.crossed:
            return "target"
        if self._is_late:
            return "max_seconds"
        if self._epochs_are_over:
            return "max_epochs"
        return "patience" if self.goal.is_out_of_patience(self.position.best_age) else ""

    @property
    def _epochs_are_over(self) -> bool:
        return self.position.num_epochs is not None and self.position.epoch >= self.position.num_epochs

    @property
    def out_of_time(self) -> bool:
        """Whether the time limit asks for a last evaluation; several ranks evaluate together, so they agree first."""
        return self.position.agreed == "max_seconds" if self._are_several else self._is_late

    @property
    def _is_late(self) -> bool:
        """Whether the time limit is reached by this rank's clock."""
        return self.goal.max_seconds is not None and self.position.wall_s >= self.goal.max_seconds

    def ending_of(self, error: BaseException | None) -> "tuple[runs.Status, str, str]":
        """Status, word and sentence for a run whose block ended with that error."""
        if error is None or isinstance(error, Stopped):
            word = self.over or "script"
            return ("stopped" if word == "stopped" else "done"), word, self.sentence(word)
        if isinstance(error, Enough) or (isinstance(error, Exception | SystemExit) and self.position.seen_enough):
            return "done", "profiled", "profiled"
        if isinstance(error, KeyboardInterrupt):
            return "stopped", "stopped", self._log.stopped_by or "stopped by Ctrl-C"
        if isinstance(error, SystemExit):
            clean = error.code in (None, 0)
            return ("done" if clean else "failed"), "exit", f"the script ended by sys.exit({error.code!r})"
        if isinstance(error, Diverged):
            return "failed", "diverged", str(error)
        if isinstance(error, UserError):
            # for example a full disk: the run itself is sound, and can go on once that is fixed
            return ("stopped" if self.position.step else "failed"), "refused", str(error)
        if refused := script_refusal(error):
            return ("stopped" if self.position.step else "failed"), "refused", str(refused)
        return "failed", "error", self._log.why(error)

    def sentence(self, word: str) -> str:
        """The reason as a sentence."""
        target, position = self.target, self.position
        if word == "stopped":
            return self._log.stopped_by or "stopped by another rank"
        if word == "target":
            return "target reached"
        if word == "max_seconds":
            most_s, took_s = errors.certain(self.goal.max_seconds), position.wall_s
            late = f", at {took_s:.1f} s: a step or an evaluation took longer" if took_s > 1.5 * most_s + 1 else ""
            return f"max_seconds {most_s:g} used up{late}"
        if word == "patience":
            return f"no better {errors.certain(target).metric.label} in {self.goal.patience} evaluations"
        if word == "profiled":
            return word
        sentence = f"max_epochs {position.epoch} trained" if word == "max_epochs" else "the script ended"
        if target is not None and position.evaluated_step < 0:
            name = target.metric.name
            sentence += f", and {name} was never evaluated: call run.evaluate({name}=...) each epoch"
        return sentence

"""Metrics, targets and goals: what a run is watched for, in which direction better lies, and when it gives up."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from labkit.errors import UserError


@dataclass(frozen=True)
class Metric:
    """One number that evaluations give."""

    name: str
    label: str
    higher_is_better: bool
    low: float = -math.inf
    """The least value it can take."""
    high: float = math.inf
    """The greatest value that takes any learning to reach; infinity where there is no such bound."""

    def better(self, value: float, than: float) -> bool:
        return value > than if self.higher_is_better else value < than

    def refuse_beyond(self, value: float) -> None:
        """Refuse a value that the metric cannot take."""
        if value < self.low or (self.higher_is_better and value > self.high):
            hint = " Divide a percentage by 100." if 1 < value <= 100 else ""
            bounds = f"between {self.low:g} and {self.high:g}" if self.higher_is_better else f"at {self.low:g} or above"
            raise UserError(
                f"{self.name} is {value:g}, and {self.label} lies {bounds}: evaluate it so, or give your metric a name "
                f"of its own.{hint}"
            )


METRICS = {
    metric.name: metric
    for metric in (
        Metric("auc", "AUC", True, 0.0, 1.0),
        Metric("accuracy", "accuracy", True, 0.0, 1.0),
        Metric("log_loss", "log loss (nats)", False, 0.0),
        Metric("normalised_entropy", "normalised entropy", False, 0.0),
        # insertions can bring an error rate beyond 1, which writing nothing at all would reach
        Metric("validation_loss", "validation loss", False),
        Metric("cer", "character error rate", False, 0.0, 1.0),
        Metric("wer", "word error rate", False, 0.0, 1.0),
    )
}
"""Metrics whose direction and bounds are known; a script may use any other name."""


def evaluated_name(name: str) -> str:
    """What an evaluation's number is called in the record: "loss" there is that of the training steps."""
    return "validation_loss" if name == "loss" else name


def metric_named(name: str, higher_is_better: bool | None) -> Metric:
    """The metric of that name; of an unknown one, the direction says what is better (None: lower)."""
    return METRICS.get(name) or Metric(name, name, bool(higher_is_better))


@dataclass(frozen=True)
class Target:
    """The value of one metric at which a job counts as trained."""

    metric: Metric
    value: float | None
    """None watches the metric for its best value, and ends nothing."""

    @classmethod
    def parse(cls, text: str) -> Target:
        """Read "auc >= 0.78", "cer <= 0.05", or "max auc" and "min loss", which watch without a value to reach.

        Raises:
            UserError: it reads otherwise, or the metric cannot take the value.

        >>> Target.parse("perplexity <= 12").metric.higher_is_better
        False
        >>> Target.parse("max auc").value is None
        True
        """
        watched = re.fullmatch(r"\s*(max|min)\s+(\w+)\s*", text)
        if watched:
            return cls(_directed(watched[2], watched[1] == "max", text), None)
        parts = re.fullmatch(r"\s*(\w+)\s*(>=|<=|>|<)\s*(\S+)\s*", text)
        try:
            name, operator, value = parts[1], parts[2], float(parts[3])
        except (TypeError, ValueError):
            raise UserError(
                f"target {text!r} is not understood: write a metric, >= or <=, and a number, such as "
                '"accuracy >= 0.9" or "cer <= 0.05"; "max accuracy" watches it without a value to reach.',
                field="target",
            ) from None
        metric = _directed(name, operator[0] == ">", text)
        # small tasks reach the best value there is; the worst takes no model at all
        up, low, high = metric.higher_is_better, metric.low, metric.high
        if not (low < value <= high if up else low <= value < high) or math.isinf(value):
            percent = f" (write {value / 100:g} for {value:g} %)" if 2 <= value < 100 and high == 1 else ""
            below = f"above {low:g} and up to" if up else f"of at least {low:g} and below"
            bounds = f"a value {below} {high:g}".removesuffix(" and below inf")
            finite = "a finite number" if low == -math.inf else bounds
            raise UserError(
                f"target: {value:g} is nothing to train the {metric.label} to: give {finite}{percent}.", field="target"
            )
        return cls(metric, value)

    def to_json(self) -> dict[str, Any]:
        """JSON-able data, from which `from_json` makes the target."""
        return {
            "metric": self.metric.name,
            "higher_is_better": self.metric.higher_is_better,
            "value": self.value,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Target:
        return cls(metric_named(data["metric"], data["higher_is_better"]), data["value"])

    def __str__(self) -> str:
        if self.value is None:
            return f"{'max' if self.metric.higher_is_better else 'min'} {self.metric.name}"
        return f"{self.metric.name} {'>=' if self.metric.higher_is_better else '<='} {self.value:.12g}"


@dataclass(frozen=True)
class Goal:
    """What a run is to reach, how that is found out, and when it gives up."""

    target: Target | None
    confirm: int
    """Evaluations in a row at or past the target that confirm it"""
    max_seconds: float | None
    evaluate_every: int | None
    """Samples"""
    patience: int | None
    """Evaluations without a better value"""

    def __post_init__(self):
        for setting in ("confirm", "evaluate_every", "patience"):
            value = getattr(self, setting)
            if value is not None and (not isinstance(value, int) or value < 1):
                raise UserError(f"labkit.Run: {setting} is {value!r}: give a whole number of at least 1.")
        if self.max_seconds is not None and not 0 < self.max_seconds < math.inf:
            raise UserError(f"labkit.Run: max_seconds is {self.max_seconds!r}: give a number above 0.")

    def described(self) -> dict[str, Any]:
        """As a run's record has it."""
        return {
            "target_metric": self.target and self.target.metric.name,
            "higher_is_better": self.target and self.target.metric.higher_is_better,
            "target": self.target and self.target.value,
            "confirm_evaluations": self.confirm,
            "patience_evaluations": self.patience,
            "evaluate_every_samples": self.evaluate_every,
            "max_seconds": self.max_seconds,
        }


def _directed(name: str, higher: bool, text: str) -> Metric:
    metric = metric_named(evaluated_name(name), higher)
    if metric.higher_is_better != higher:
        better, word, operator = ("higher", "max", ">=") if metric.higher_is_better else ("lower", "min", "<=")
        raise UserError(
            f"target {text!r}: {metric.label} is better when it is {better}: write {word} {name}, or {name} {operator} "
            "and a number.",
            field="target",
        )
    return metric

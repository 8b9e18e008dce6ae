"""Metrics, targets, goals and crossings: what a run must reach, when it did, and when it gives up."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from labkit import UserError
from labkit.tracking.values import real, whole

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Metric:
    """A number that evaluations give."""

    name: str
    label: str
    higher_is_better: bool
    low: float = -math.inf
    """Smallest possible value."""
    high: float = math.inf
    """Largest value that a useful model has; infinity if there is no such bound."""

    def better(self, value: float, than: float) -> bool:
        return value > than if self.higher_is_better else value < than

    def refuse_beyond(self, value: float) -> None:
        """Refuse a value that is impossible for this metric."""
        if value < self.low or (self.higher_is_better and value > self.high):
            hint = " Divide a percentage by 100." if 1 < value <= 100 else ""
            bounds = f"between {self.low:g} and {self.high:g}" if self.higher_is_better else f"at {self.low:g} or above"
            raise UserError(
                f"{self.name} is {value:g}, but {self.label} lies {bounds}: check how it is computed, or give your "
                f"metric another name.{hint}"
            )


METRICS = {
    metric.name: metric
    for metric in (
        Metric("auc", "AUC", True, 0.0, 1.0),
        Metric("accuracy", "accuracy", True, 0.0, 1.0),
        Metric("log_loss", "log loss (nats)", False, 0.0),
        Metric("normalised_entropy", "normalised entropy", False, 0.0),
        # insertions can bring an error rate above 1, but a model that writes nothing at all reaches 1
        Metric("validation_loss", "validation loss", False),
        Metric("cer", "character error rate", False, 0.0, 1.0),
        Metric("wer", "word error rate", False, 0.0, 1.0),
    )
}
"""Metrics with known direction and bounds; a script may use any other name."""


def evaluated_name(name: str) -> str:
    """Name of an evaluation's metric in the record, where "loss" is that of the training steps."""
    return "validation_loss" if name == "loss" else name


def metric_named(name: str, higher_is_better: bool | None) -> Metric:
    """The metric of that name; for an unknown one, `higher_is_better` gives the direction (None: lower is better)."""
    return METRICS.get(name) or Metric(name, name, bool(higher_is_better))


@dataclass(frozen=True)
class Target:
    """The value of one metric at which a job counts as trained."""

    metric: Metric
    value: float | None
    """None only watches the metric for its best value, and never ends a run."""

    @classmethod
    def parse(cls, text: str) -> Target:
        """Read "auc >= 0.78" or "cer <= 0.05"; "max auc" and "min loss" only watch a metric.

        Raises:
            UserError: it is another text, or the metric cannot have that value.

        >>> Target.parse("perplexity <= 12").metric.higher_is_better
        False
        >>> Target.parse("max auc").value is None
        True
        """
        plain = str(text).replace("≥", ">=").replace("≤", "<=")
        watched = re.fullmatch(r"\s*(max|min)\s+([^\s<>=].*?)\s*", plain)
        if watched:
            return cls(_directed(watched[2], watched[1] == "max", text), None)
        # a name may have such a sign (recall>5), but not with a space before it, which would be a second target
        parts = re.fullmatch(r"\s*([^\s<>](?:(?!\s[<>]).)*?)(?<!=)\s*(>=|<=|>|<)\s*([^\s<>=]+)\s*", plain)
        try:
            name, operator, value = parts[1], parts[2], float(parts[3])  # ty: ignore[not-subscriptable]  # TypeError if None
        except (TypeError, ValueError):
            raise UserError(
                f"target {text!r} is not valid: write a metric, >= or <=, and a number, such as "
                '"accuracy >= 0.9" or "cer <= 0.05"; "max accuracy" only watches it.',
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
                f"target: the {metric.label} cannot be trained to {value:g}: give {finite}{percent}.", field="target"
            )
        return cls(metric, value)

    def to_json(self) -> dict[str, Any]:
        """JSON-able data, from which `from_json` makes the target."""
        return {"metric": self.metric.name, "higher_is_better": self.metric.higher_is_better, "value": self.value}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Target:
        return cls(metric_named(data["metric"], data["higher_is_better"]), data["value"])

    def __str__(self) -> str:
        if self.value is None:
            return f"{'max' if self.metric.higher_is_better else 'min'} {self.metric.name}"
        return f"{self.metric.name} {'>=' if self.metric.higher_is_better else '<='} {self.value:.12g}"


@dataclass(frozen=True)
class Goal:
    """What a run must reach, how that is decided, and when it gives up."""

    target: Target | None
    confirm: int
    """Number of evaluations in a row, at or past the target, that confirm it."""
    max_seconds: float | None
    evaluate_every: int | None
    """Number of samples between evaluations."""
    patience: int | None
    """Number of evaluations without a better value after which the run ends."""

    def __post_init__(self):
        for setting in ("confirm", "evaluate_every", "patience"):
            if (value := getattr(self, setting)) is not None:
                object.__setattr__(self, setting, whole(value, f"labkit.Run: {setting}", least=1))
        if self.max_seconds is not None:
            seconds = real(self.max_seconds, "labkit.Run: max_seconds")
            if not 0 < seconds < math.inf:
                raise UserError(f"labkit.Run: max_seconds is {self.max_seconds!r}: give a number above 0.")
            object.__setattr__(self, "max_seconds", seconds)

    def is_out_of_patience(self, best_age: int) -> bool:
        """Whether a run ends whose best evaluation is that many evaluations old."""
        return self.patience is not None and best_age >= self.patience

    def described(self) -> dict[str, Any]:
        """Settings for the record of a run."""
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
            f"target {text!r}: a {better} {metric.label} is better: write {word} {name}, or {name} {operator} and a "
            "number.",
            field="target",
        )
    return metric


CONFIRM = 2
"""Default number of evaluations in a row that confirm a target."""


def crossing(
    values: np.ndarray,
    counts: np.ndarray,
    targets: np.ndarray,
    confirm: np.ndarray | int = 1,
    *,
    higher_is_better: bool,
) -> np.ndarray:
    """The evaluation at which each run reached each target; nothing is interpolated.

    With `confirm` 1 this is the *first* crossing. With a run's own `confirm_evaluations` it is the *sustained* one,
    which needs more than one lucky evaluation. A training run calls this after each evaluation.

    Args:
        values: (N,) evaluations of all runs, one run after the other, in order; NaN reaches no target.
        counts: (R,) number of evaluations per run.
        targets: (L,) target values.
        confirm: (R,) or one number: evaluations in a row, all at or past the target, of which the first counts.
        higher_is_better: direction of the metric.

    Returns:
        (L, R) indices among each run's evaluations; -1 if it did not reach the target.

    >>> crossing([0.7, 0.9, 0.6, 0.8, 0.9, 0.9], [5, 1], [0.8, 0.95], [2, 1], higher_is_better=True)
    array([[ 3,  0],
           [-1, -1]])
    """
    import numpy as np

    sign = 1 if higher_is_better else -1
    values, targets, counts = np.asarray(values, float), np.asarray(targets, float), np.asarray(counts)
    run, ends = np.repeat(np.arange(len(counts)), counts), np.cumsum(counts)
    order = np.argsort(sign * targets)
    passed = np.searchsorted(sign * targets[order], np.where(np.isnan(values), -np.inf, sign * values), side="right")
    needed, least = np.broadcast_to(confirm, len(counts))[run], passed  # number of targets that each evaluation passes
    for step in range(1, max(needed, default=1)):
        later = np.append(passed[step:], np.zeros(min(step, len(passed)), int))
        later[np.arange(len(later)) + step >= ends[run]] = 0
        least = np.where(needed > step, np.minimum(least, later), least)
    # one sorted column for all runs: the most targets passed so far, plus an offset above those of earlier runs
    best = np.maximum.accumulate(run * (len(targets) + 1) + least)
    wanted = np.arange(len(counts)) * (len(targets) + 1) + np.arange(1, len(targets) + 1)[:, None]
    place = np.searchsorted(best, wanted)
    found = np.empty(place.shape, int)
    found[order] = np.where(place < ends, place - (ends - counts), -1)
    return found

"""What a target can be set on, and how each metric is computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from labkit.data.auc import auc
from labkit.errors import UserError


@dataclass(frozen=True)
class Metric:
    """One metric of a validation or test split."""

    name: str
    label: str
    higher_is_better: bool
    low: float
    """The least value it can take."""
    high: float
    """The greatest value that takes any learning to reach; infinity where there is no such bound."""

    def better(self, value: float, than: float) -> bool:
        return value > than if self.higher_is_better else value < than

    def reaches(self, value: float, target: float) -> bool:
        return value >= target if self.higher_is_better else value <= target


METRICS = {
    metric.name: metric
    for metric in (
        Metric("auc", "AUC", True, 0.0, 1.0),
        Metric("accuracy", "accuracy", True, 0.0, 1.0),
        Metric("log_loss", "log loss (nats)", False, 0.0, np.inf),
        Metric("normalised_entropy", "normalised entropy", False, 0.0, np.inf),
        # insertions can bring an error rate beyond 1, which writing nothing at all would reach
        Metric("cer", "character error rate", False, 0.0, 1.0),
        Metric("wer", "word error rate", False, 0.0, 1.0),
    )
}
CLICK_METRICS = ("auc", "log_loss", "normalised_entropy", "accuracy")
SPEECH_METRICS = ("cer", "wer")


@dataclass(frozen=True)
class Target:
    """The value of one metric at which a job counts as trained."""

    metric: Metric
    value: float

    @classmethod
    def parse(cls, text: str, *, default_metric: str, allowed: Sequence[str]) -> Target:
        """Read "0.78" (of the default metric) or "log_loss=0.45".

        Raises:
            UserError: the metric is not one of `allowed`, or cannot take the value.

        >>> Target.parse("wer=0.05", default_metric="cer", allowed=SPEECH_METRICS).metric.label
        'word error rate'
        """
        name, _, number = text.rpartition("=")
        name = name.strip() or default_metric
        if name not in allowed:
            raise UserError(
                f"target: metric {name!r} is not one this job measures: choose one of {', '.join(allowed)}."
            )
        metric = METRICS[name]
        try:
            value = float(number)
        except ValueError:
            raise UserError(
                f"target: {number!r} is not a number: write a value such as 0.78, or a metric and a value such as "
                f"{allowed[-1]}={0.8 if METRICS[allowed[-1]].higher_is_better else 0.1}."
            ) from None
        # the best value needs a perfect model, and the worst no model at all
        if not metric.low < value < metric.high:
            percent = f" (write {value / 100:g} for {value:g} %)" if 2 <= value < 100 and metric.high == 1 else ""
            raise UserError(
                f"target: {value:g} is nothing to train the {metric.label} to: give a value above {metric.low:g}"
                + (f" and below {metric.high:g}{percent}." if metric.high < np.inf else ".")
            )
        return cls(metric, value)

    def reached(self, value: float) -> bool:
        return self.metric.reaches(value, self.value)


def click_metrics(label: np.ndarray, logit: np.ndarray) -> dict[str, float]:
    """AUC, log loss (nats), normalised entropy and accuracy of logits (N,) for labels 0 or 1 (N,).

    Normalised entropy is the log loss over the entropy of the base rate (He et al., ADKDD 2014, §3).

    >>> scores = click_metrics(np.array([0, 1, 1, 0]), np.array([-2.0, 1.0, 0.5, -1.0]))
    >>> scores["auc"], scores["accuracy"]
    (1.0, 1.0)
    """
    label = np.asarray(label, dtype=np.float64)
    logit = np.asarray(logit, dtype=np.float64)
    positives = label.sum()
    negatives = len(label) - positives
    if not positives or not negatives:
        raise UserError(
            f"this split holds {int(positives)} positive and {int(negatives)} negative labels, so AUC is not "
            "defined: use more rows, or check the schema's positive value."
        )
    # log(1 + exp(-x)) for positives, log(1 + exp(x)) for negatives
    log_loss = np.logaddexp(0.0, np.where(label == 1, -logit, logit)).mean()
    rate = positives / len(label)
    entropy = -(rate * np.log(rate) + (1 - rate) * np.log(1 - rate))
    return {
        "auc": auc(label, logit),
        "log_loss": float(log_loss),
        "normalised_entropy": float(log_loss / entropy),
        "accuracy": float(((logit > 0) == (label == 1)).mean()),
    }


def speech_metrics(references: list[str], hypotheses: list[str]) -> dict[str, float]:
    """Character and word error rate over all utterances together.

    >>> speech_metrics(["one two"], ["one too"])["wer"]
    0.5
    """
    import jiwer

    return {
        "cer": float(jiwer.cer(references, hypotheses)),
        "wer": float(jiwer.wer(references, hypotheses)),
    }

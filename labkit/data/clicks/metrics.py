"""What a click model is scored by."""

from __future__ import annotations

import numpy as np

from labkit.errors import UserError


def click_metrics(label: np.ndarray, logit: np.ndarray) -> dict[str, float]:
    """AUC, log loss (nats), normalised entropy and accuracy of logits (N,) for labels 0 or 1 (N,).

    Normalised entropy is the log loss over the entropy of the base rate (He et al., ADKDD 2014, §3).

    >>> scores = click_metrics(np.array([0, 1, 1, 0]), np.array([-2.0, 1.0, 0.5, -1.0]))
    >>> scores["auc"], scores["accuracy"]
    (1.0, 1.0)
    """
    label, logit = (np.asarray(each, dtype=np.float64) for each in (label, logit))
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


def auc(label: np.ndarray, score: np.ndarray) -> float:
    """The share of (positive, negative) pairs that the scores put in the right order (Mann–Whitney), ties by half.

    Labels (N,) are 0 or 1; NaN where only one class is present, or a score (N,) is NaN.

    >>> auc(np.array([0, 1, 1, 0]), np.array([0.1, 0.9, 0.4, 0.4]))
    0.875
    """
    positives = int((label == 1).sum())
    negatives = len(label) - positives
    if not positives or not negatives or np.isnan(score).any():
        return float("nan")
    # Each score's rank from 1, equal scores share the mean of theirs. Not scipy.stats, which takes a second to import.
    _, place, count = np.unique(score, return_inverse=True, return_counts=True)
    rank = (np.cumsum(count) - (count - 1) / 2)[place]
    return float((rank[label == 1].sum() - positives * (positives + 1) / 2) / (positives * negatives))

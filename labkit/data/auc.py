"""Area under the ROC curve."""

from __future__ import annotations

import numpy as np


def auc(label: np.ndarray, score: np.ndarray) -> float:
    """The share of (positive, negative) pairs that the scores put in the right order (Mann–Whitney), ties by half.

    Args:
        label: (N,), 0 or 1.
        score: (N,), any order-preserving score of being 1.

    Returns:
        NaN where only one class is present, or a score is NaN.

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

"""How long a run will still take, guessed from its limits and from where its metric is heading."""

from __future__ import annotations

import math
from typing import Any

from labkit.tracking.goal import metric_named


def time_left_s(
    config: dict[str, Any], wall_s: float, samples: int, evaluations: list[tuple[float, float]]
) -> float | None:
    """Seconds until the run ends, or None before the first sample.

    The nearest of the limits counts. Towards the target, the way left is taken to be walked at the speed of the last
    three evaluations on a scale where learning curves are nearly straight (logarithm of the metric's distance to its
    best value), so the guess is rough early on.

    Args:
        config: the run's whole configuration, as in `run.json`.
        wall_s: how long the run has gone on.
        samples: training samples so far.
        evaluations: (wall_s, value) of the target metric so far.
    """
    train = config["train"]
    guesses = []
    train_samples = config.get("data", {}).get("train_samples")
    if samples and train_samples and train.get("max_epochs") is not None:
        all_samples = train["max_epochs"] * train_samples
        guesses.append(wall_s * (all_samples / samples - 1))
    if train["max_seconds"] is not None:
        guesses.append(train["max_seconds"] - wall_s)
    if train["target"] is not None and len(evaluations) >= 2:
        metric = metric_named(train["target_metric"], train["higher_is_better"])
        bound = metric.high if metric.higher_is_better else max(metric.low, 0.0)
        (t0, v0), (t1, v1) = evaluations[-3:][0], evaluations[-1]
        if math.isinf(bound):
            return max(0.0, min(guesses)) if guesses else None
        here, before, goal = (math.log(max(abs(bound - value), 1e-9)) for value in (v1, v0, train["target"]))
        if here < before and t1 > t0:
            guesses.append((here - goal) * (t1 - t0) / (before - here) + t1 - wall_s)
    return max(0.0, min(guesses)) if guesses else None

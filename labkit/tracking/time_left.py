"""How long a run will still take, guessed from its limits and from where its metric is heading."""

from __future__ import annotations

import math
from typing import Any

from labkit.tracking.goal import metric_named


def time_left_s(
    config: dict[str, Any], wall_s: float, samples: int, evaluations: list[tuple[float, float]]
) -> float | None:
    """Seconds until the nearest limit, by the run's configuration and its evaluations so far; None before any sample.

    Towards the target, the way left is taken to be walked at the speed of the last three evaluations, (wall_s, value)
    each, on a scale where learning curves are nearly straight: the logarithm of the distance to the best value.
    """
    train, guesses = config["train"], []
    train_samples, epochs = config.get("data", {}).get("train_samples"), train.get("max_epochs")
    if samples and train_samples and epochs is not None:
        guesses.append(wall_s * (epochs * train_samples / samples - 1))
    if train["max_seconds"] is not None:
        guesses.append(train["max_seconds"] - wall_s)
    if train["target"] is not None and len(evaluations) >= 2:
        metric = metric_named(train["target_metric"], train["higher_is_better"])
        bound = metric.high if metric.higher_is_better else max(metric.low, 0.0)
        (t0, v0), (t1, v1) = evaluations[-3:][0], evaluations[-1]
        if math.isfinite(bound) and t1 > t0:
            here, before, goal = (math.log(max(abs(bound - value), 1e-9)) for value in (v1, v0, train["target"]))
            if here < before:
                guesses.append((here - goal) * (t1 - t0) / (before - here) + t1 - wall_s)
    return max(0.0, min(guesses)) if guesses else None

"""How long a run will still take, guessed from its limits and from where its metric is heading."""

from __future__ import annotations

import math
from typing import Any

from labkit.training.metrics import METRICS


def time_left_s(config: dict[str, Any], wall_s: float, evaluations: list[tuple[float, float]]) -> float | None:
    """Seconds until the run ends, or None where nothing bounds it yet.

    The nearest of the limits counts. Towards the target, the way left is taken to be walked at the speed of the last
    three evaluations on a scale where learning curves are nearly straight (logarithm of the metric's distance to its
    best value), so the guess is rough early on.

    Args:
        config: the run's TrainConfig as a dictionary.
        wall_s: how long the run has gone on.
        evaluations: (wall_s, value) of the target metric so far.
    """
    guesses = []
    if config["max_seconds"] is not None:
        guesses.append(config["max_seconds"] - wall_s)
    if config["target"] is not None and len(evaluations) >= 2:
        metric = METRICS[config["target_metric"]]
        bound = metric.high if metric.higher_is_better else metric.low
        (t0, v0), (t1, v1) = evaluations[-3:][0], evaluations[-1]
        here, before, goal = (math.log(max(abs(bound - v), 1e-9)) for v in (v1, v0, config["target"]))
        if here < before and t1 > t0:
            guesses.append(max(0.0, (here - goal) * (t1 - t0) / (before - here)) + t1 - wall_s)
    return max(0.0, min(guesses)) if guesses else None

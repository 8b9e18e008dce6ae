"""What the tour runs on this machine."""

from __future__ import annotations

from labkit.hardware.budgets.names import offered_budgets
from labkit.training.request import TrainRequest

JOBS = ("dlrm", "speech")
SEEDS = (0, 1)


def plan_tour(jobs: tuple[str, ...] = JOBS, seeds: tuple[int, ...] = SEEDS) -> list[TrainRequest]:
    """One request for each job, budget this machine offers, and seed; budgets take turns, so drift hits all alike."""
    return [
        TrainRequest(job=job, budget=budget.name, seed=seed)
        for job in jobs
        for seed in seeds
        for budget in offered_budgets()
    ]

"""What the tour runs on this machine."""

from __future__ import annotations

from labkit.hardware.budgets.names import offered_budgets
from labkit.tour.run import TourRun

JOBS = ("dlrm", "speech")
SEEDS = (0, 1)


def plan_tour(jobs: tuple[str, ...] = JOBS, seeds: tuple[int, ...] = SEEDS) -> list[TourRun]:
    """One run for each job, budget this machine offers, and seed; budgets take turns, so drift hits all alike."""
    return [TourRun(job, budget.name, seed) for job in jobs for seed in seeds for budget in offered_budgets()]

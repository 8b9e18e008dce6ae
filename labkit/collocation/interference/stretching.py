"""How resources that are asked for more than they give stretch the time that jobs spend on them.

Job i alone keeps resource r busy for the share d_ir of its time. Together, each resource stretches the time on it by
one factor x_r ≥ 1 for all jobs, as a queue that serves them in turn does. Resources are used at the same time, so the
slowest decides, and what of a step is on no resource stays as long as it was:

    s_i = max_r (1 + d_ir · (x_r − 1))        x_r the least with   Σ_i d_ir / s_i ≤ 1

A job that is slowed down asks for less a second, which is why s_i stands below d_ir: two jobs with d = 1 slow down by
2, two with d = 0.5 not at all, and a job with d = 0.1 hardly beside whatever.

Assumptions: demands are even over time (bursts collide even where Σ d < 1, so short steps in lockstep do worse), a
resource gives in sum what it gives to one, and serves all alike. Real memory slows down before it is full (Eklöv et
al., "Bandwidth Bandit", ISPASS 2012). Per-resource profiles of this kind decide which kernels may overlap in Orion
(Strati et al., EuroSys 2024); with the share of time the GPU is busy as the one resource, it is the proxy of Horus
(Yeung et al., TPDS 33(1), 2022).
"""

from __future__ import annotations

from collections.abc import Sequence

SWEEPS = 50
"""Over the resources; each only raises a stretch, and few are ever needed."""
HALVINGS = 60
"""Of the interval in which a stretch lies: beyond the precision of a float."""


def stretched(demands: Sequence[Sequence[float]]) -> tuple[list[float], list[int | None]]:
    """Slowdowns of jobs, and which resource binds each.

    Args:
        demands: of each job, the share of its time alone that it spends on each resource, 0 to 1.

    Returns:
        The slowdown of each job, at least 1, and the place of the resource that causes it, None where it is 1.

    >>> stretched([[1.0], [1.0]])[0]
    [2.0, 2.0]
    >>> stretched([[0.5, 0.2], [0.5, 0.6]])
    ([1.0, 1.0], [None, None])
    """
    factors = [1.0] * len(demands[0])
    for _ in range(SWEEPS):
        before = list(factors)
        for resource in range(len(factors)):
            factors[resource] = _least_factor(demands, factors, resource)
        if max(abs(now - was) for now, was in zip(factors, before, strict=True)) < 1e-9:
            break
    slowdowns = [round(_slowdown(job, factors), 9) for job in demands]
    binding = [
        None if slowdown <= 1 + 1e-6 else max(range(len(job)), key=lambda r, job=job: job[r] * (factors[r] - 1))
        for job, slowdown in zip(demands, slowdowns, strict=True)
    ]
    return slowdowns, binding


def _slowdown(demand: Sequence[float], factors: Sequence[float]) -> float:
    return max(1 + share * (factor - 1) for share, factor in zip(demand, factors, strict=True))


def _least_factor(demands: Sequence[Sequence[float]], factors: Sequence[float], resource: int) -> float:
    def is_enough(factor: float) -> bool:
        tried = [*factors[:resource], factor, *factors[resource + 1 :]]
        return sum(job[resource] / _slowdown(job, tried) for job in demands) <= 1 + 1e-12

    low, high = 1.0, 1.0
    while not is_enough(high):
        low, high = high, 2 * high
    for _ in range(HALVINGS if high > 1 else 0):
        middle = (low + high) / 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high

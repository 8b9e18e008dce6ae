"""What the profiler takes to write one event down, on this machine."""

from __future__ import annotations

import time

import torch
from torch.profiler import ProfilerActivity, profile

CALLS, ROUNDS = 2000, 3


def event_cost_us(*, shapes: bool, memory: bool) -> float:
    """Microseconds that an operator takes longer under torch.profiler; the least of some rounds.

    Args:
        shapes: whether the sizes of inputs are recorded.
        memory: whether each allocation is.
    """
    number = torch.zeros(1)

    def calls_us() -> float:
        began = time.perf_counter()
        for _ in range(CALLS):
            number.add_(1)
        return 1e6 * (time.perf_counter() - began) / CALLS

    costs = []
    for _ in range(ROUNDS):
        plain_us = calls_us()
        with profile(activities=[ProfilerActivity.CPU], record_shapes=shapes, profile_memory=memory):
            costs.append(calls_us() - plain_us)
    return max(0.0, min(costs))

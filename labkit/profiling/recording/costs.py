"""What looking and fresh memory cost on this machine: an event of the profiler, and a minor page fault.

A fault is the first touch of a page that the system has handed out: it clears the page then. A step whose tensors get
memory that was freed before has none; where the allocator gives such memory back, each step has them again.
"""

from __future__ import annotations

import mmap
import time

import torch
from torch.profiler import ProfilerActivity, profile

try:
    import resource
except ImportError:  # Windows
    resource = None

CALLS, EVENT_ROUNDS = 2000, 3
FRESH, FAULT_ROUNDS = bytes(1 << 20), 20
"""Short rounds, between which other programs take the core."""


def event_cost_us(*, shapes: bool, memory: bool) -> float:
    """Microseconds that an operator takes longer under torch.profiler; the least of some rounds."""
    number = torch.zeros(1)

    def calls_us() -> float:
        began = time.perf_counter()
        for _ in range(CALLS):
            number.add_(1)
        return 1e6 * (time.perf_counter() - began) / CALLS

    costs = []
    for _ in range(EVENT_ROUNDS):
        plain_us = calls_us()
        with profile(activities=[ProfilerActivity.CPU], record_shapes=shapes, profile_memory=memory):
            costs.append(calls_us() - plain_us)
    return max(0.0, min(costs))


def minor_faults() -> int:
    """Of this process so far; 0 where the system does not say (Windows)."""
    return 0 if resource is None else resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def fault_cost_us() -> float | None:
    """Microseconds that a fault takes: of two writes to fresh memory, only the first has faults.

    The least of some rounds, since others only slow it down. None where faults are not counted.
    """
    if resource is None:
        return None
    rounds = []
    for _ in range(FAULT_ROUNDS):
        fresh = mmap.mmap(-1, len(FRESH), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # as malloc asks for it
        before, began = minor_faults(), time.perf_counter()
        fresh[:] = FRESH
        between = time.perf_counter()
        fresh[:] = FRESH
        rounds.append((between - began, time.perf_counter() - between, minor_faults() - before))
    first_s, second_s, faults = map(min, zip(*rounds, strict=True))
    return 1e6 * max(0.0, first_s - second_s) / max(1, faults)

"""Counts minor page faults, and measures what one costs.

A fault is the first touch of a page that the system has handed out: it clears the page then. A step whose tensors get
memory that was freed before has none; where the allocator gives such memory back, each step has them again.
"""

from __future__ import annotations

import mmap
import time

try:
    import resource
except ImportError:  # Windows
    resource = None

CONTENT, ROUNDS = bytes(1 << 20), 20
"""Short rounds, between which other programs take the core."""


def minor_faults() -> int | None:
    """Of this process so far; None where the system does not say (Windows)."""
    return None if resource is None else resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def fault_cost_us() -> float | None:
    """Microseconds that a fault takes: of two writes to fresh memory, only the first has faults.

    The least of some rounds, 10 ms together, since others only slow it down. None where faults are not counted.
    """
    if minor_faults() is None:
        return None
    rounds = [_round() for _ in range(ROUNDS)]
    first_s, second_s, faults = (min(column) for column in zip(*rounds, strict=True))
    return 1e6 * max(0.0, first_s - second_s) / max(1, faults)


def _round() -> tuple[float, float, int]:
    """Seconds of the first write and of the second, and faults."""
    fresh = mmap.mmap(-1, len(CONTENT), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # as malloc asks for it
    before, began = minor_faults(), time.perf_counter()
    fresh[:] = CONTENT
    between = time.perf_counter()
    fresh[:] = CONTENT
    return between - began, time.perf_counter() - between, minor_faults() - before

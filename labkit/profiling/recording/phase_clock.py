"""Times the phases of steps: how long each took, how much CPU time the process had in it, and its page faults."""

from __future__ import annotations

import contextlib
import mmap
import time
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import torch

try:
    import resource
except ImportError:  # Windows
    resource = None

FRESH, FAULT_ROUNDS = bytes(1 << 20), 20
"""Short rounds, between which other programs take the core."""


class PhaseClock:
    """Goes from phase to phase; each is also an annotation in the trace, and on a GPU a range for NVIDIA's tools."""

    def __init__(self):
        self.nvtx = False
        self._open: list[tuple[str, contextlib.ExitStack]] = []
        self.restart()

    def restart(self) -> None:
        """Forget what was timed so far."""
        self._sums: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(3))
        self._at = _now()

    @property
    def phase(self) -> str:
        """The one that goes on; empty outside of all."""
        return self._open[-1][0] if self._open else ""

    @contextlib.contextmanager
    def watch(self, name: str) -> Iterator[None]:
        """Time the block as a phase; within another one, its time is not counted there."""
        self.begin(name)
        try:
            yield
        finally:
            self.end()

    def begin(self, name: str) -> None:
        self._charge()
        told = contextlib.ExitStack()
        told.enter_context(torch.profiler.record_function(name))
        if self.nvtx:
            told.enter_context(torch.cuda.nvtx.range(name))
        self._open.append((name, told))

    def end(self) -> None:
        self._charge()
        _, told = self._open.pop()
        told.close()

    def read(self) -> tuple[dict[str, list[float]], dict[str, float]]:
        """Of each phase since the last reading: microseconds of wall and of the process' CPU time, and page faults."""
        self._charge()
        sums = {name: sums.tolist() for name, sums in self._sums.items()}
        self.restart()
        times_us = {name: [1e6 * wall_s, 1e6 * cpu_s] for name, (wall_s, cpu_s, _) in sums.items()}
        return times_us, {name: faults for name, (*_, faults) in sums.items()}

    def _charge(self) -> None:
        now = _now()
        self._sums[self.phase] += now - self._at
        self._at = now


def _now() -> np.ndarray:
    return np.array([time.perf_counter(), time.process_time(), minor_faults()])


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

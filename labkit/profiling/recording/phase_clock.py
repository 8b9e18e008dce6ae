"""Times the phases of steps: how long each took, how much CPU time the process had in it, and its page faults."""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import torch

from labkit.profiling.recording.costs import minor_faults


class PhaseClock:
    """Goes from phase to phase; each is also an annotation in the trace, and on a GPU a range for NVIDIA's tools."""

    def __init__(self):
        self.nvtx = False
        self._open: list[tuple[str, torch.profiler.record_function, bool]] = []
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
        annotation = torch.profiler.record_function(name)
        annotation.__enter__()
        self._open.append((name, annotation, self.nvtx))
        if self.nvtx:
            torch.cuda.nvtx.range_push(name)

    def end(self) -> None:
        self._charge()
        _, annotation, is_range = self._open.pop()
        if is_range:
            torch.cuda.nvtx.range_pop()
        annotation.__exit__(None, None, None)

    def read(self) -> tuple[dict[str, list[float]], dict[str, float]]:
        """Of each phase since the last reading: microseconds of wall and of the process' CPU time, and page faults."""
        self._charge()
        sums = {name: sums.tolist() for name, sums in self._sums.items()}
        self.restart()
        return {name: [1e6 * wall_s, 1e6 * cpu_s] for name, (wall_s, cpu_s, _) in sums.items()}, {
            name: faults for name, (*_, faults) in sums.items()
        }

    def _charge(self) -> None:
        now = _now()
        self._sums[self.phase] += now - self._at
        self._at = now


def _now() -> np.ndarray:
    return np.array([time.perf_counter(), time.process_time(), minor_faults()])

"""The processes below a notebook's worker: their memory, and their end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import psutil


class Family:
    """The processes below one worker, watched from outside.

    Pages that several processes share count once where the system tells. Telling takes it 10 ms a process, in which
    that process waits for its memory. So it is asked only when the sum in which shared pages count several times, which
    is quick to have and never less, has grown, or is above the limit.
    """

    GROWN = 1.02

    def __init__(self, worker_pid: int, limit_bytes: int | None):
        self._worker, self._limit_bytes = psutil.Process(worker_pid), limit_bytes
        self._known: set[psutil.Process] = set()
        self._highest_sum, self.peak_bytes = 0, 0

    def look(self) -> int:
        """The bytes in use now, if they may be more than ever or more than the limit; else the most there were."""
        self._meet()
        total = sum(self._each(lambda process: process.memory_info().rss))
        above = self._limit_bytes is not None and total > self._limit_bytes
        if not above and total <= self.GROWN * self._highest_sum:
            return self.peak_bytes
        self._highest_sum = max(self._highest_sum, total)
        in_use = sum(self._each(_unshared))
        self.peak_bytes = max(self.peak_bytes, in_use)
        return in_use

    def end(self) -> None:
        """Leave none of them running, not even those that have lost their parent since they were seen."""
        for _ in range(3):  # what is started while others are ended is met the next time; the worker adopts it
            self._meet()
            for process in self._known:
                _kill(process)
        _kill(self._worker)
        psutil.wait_procs(self._known, timeout=10)

    def _meet(self) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            self._known |= set(self._worker.children(recursive=True))

    def _each(self, measure: Callable[[psutil.Process], object]) -> Iterator:
        for process in list(self._known):
            with contextlib.suppress(psutil.Error):
                yield measure(process)


def _kill(process: psutil.Process) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.kill()  # psutil asks first whether the number is still that process


def _unshared(process: psutil.Process) -> int:
    memory = process.memory_full_info()
    return getattr(memory, "pss", memory.rss)

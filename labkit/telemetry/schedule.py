"""When samples are due: on a grid that never drifts, by a clock that nobody sets."""

from __future__ import annotations

import time
from collections.abc import Callable

_S = 10**9


class Schedule:
    """Points in time 1/hz apart. What came late is not made up for by a burst of samples: it is counted as missed."""

    def __init__(
        self,
        hz: float,
        clock_ns: Callable[[], int] = time.monotonic_ns,
        date_ns: Callable[[], int] = time.time_ns,
    ):
        """Begin now, with the first sample due at once."""
        self._period_ns, self._clock_ns = round(_S / hz), clock_ns
        self._begin_ns, self._date_ns = clock_ns(), date_ns()
        self._next = 0

    def now_ns(self) -> int:
        """Nanoseconds since 1970, by the date at the beginning and a clock that nobody sets."""
        return self._date_ns + self._since_ns()

    def wait_s(self) -> float:
        """Seconds until the next point."""
        return max(0.0, (self._next * self._period_ns - self._since_ns()) / _S)

    def arrive(self) -> int:
        """Take the latest point that has come; how many before it were missed."""
        latest = self._since_ns() // self._period_ns
        missed = max(0, latest - self._next)
        self._next = max(latest, self._next) + 1
        return missed

    def _since_ns(self) -> int:
        return self._clock_ns() - self._begin_ns

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
        self._number = 0

    def now_ns(self) -> int:
        """Nanoseconds since 1970, by the date at the beginning and a clock that nobody sets."""
        return self._date_ns + self._clock_ns() - self._begin_ns

    def advance(self) -> tuple[float, int]:
        """Move on to the next point that is still to come: seconds until then, and how many points were missed."""
        since_ns = self._clock_ns() - self._begin_ns
        wanted = self._number + 1
        self._number = max(wanted, since_ns // self._period_ns + (since_ns % self._period_ns > 0))
        return max(0.0, (self._number * self._period_ns - since_ns) / _S), self._number - wanted

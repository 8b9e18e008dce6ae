"""A clock for exercises whose code measures time: the same seconds on every machine."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, repeat
from typing import Any


class FakeClock:
    """Tells the seconds; what works or sleeps by it moves it, and each look at it by a nanosecond.

    >>> clock = FakeClock()
    >>> work = clock.work(5.0, 0.5, does=lambda: "done")
    >>> [(work(), round(clock(), 6)) for _ in range(3)]
    [('done', 105.0), ('done', 105.5), ('done', 106.0)]
    """

    def __init__(self):
        self._now = 100.0

    def __call__(self) -> float:
        self._now += 1e-9
        return self._now

    def work(self, *seconds: float, does: Callable[..., Any] = lambda *_: None) -> Callable[..., Any]:
        """A function that does this and takes these seconds, call by call, and from then on the last of them."""
        left = chain(seconds, repeat(seconds[-1]))

        def call(*given: Any) -> Any:
            self._now += next(left)
            return does(*given)

        return call

    def sleep(self, seconds: float) -> None:
        """A little longer than asked, as systems do."""
        if seconds < 0:
            raise ValueError("sleep length must be non-negative")
        self._now += seconds + (1e-4 if seconds else 0.0)

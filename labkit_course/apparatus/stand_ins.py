"""What stands for a clock, and for `labkit.Run`, where a check watches a student's code."""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any


class FakeClock:
    """Gives the same seconds on every machine: work and sleep move it on, and each look at it by a nanosecond.

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
        """A function that calls `does` and takes these seconds, call by call; later calls take the last of them."""
        left = itertools.chain(seconds, itertools.repeat(seconds[-1]))

        def call(*given: Any) -> Any:
            self._now += next(left)
            return does(*given)

        return call

    def sleep(self, seconds: float) -> None:
        """Sleep a little longer than asked, as systems do."""
        if seconds < 0:
            raise ValueError("sleep length must be non-negative")
        self._now += seconds + (1e-4 if seconds else 0.0)


class WatchedRun:
    """Keeps what a loop reports, and writes nothing; an evaluation is due after each third step.

    Args:
        most_steps: steps after which the run is over, and an evaluation always due.
    """

    def __init__(self, most_steps: float = math.inf):
        self._most_steps = most_steps
        self.epochs_asked: int | None = None
        self.losses: list[float] = []
        self.samples: list[int] = []
        self.evaluated: list[dict[str, float]] = []

    def epochs(self, count: int) -> Iterator[int]:
        self.epochs_asked = count
        yield from itertools.takewhile(lambda _: not self.over, range(count))

    def batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        yield from itertools.takewhile(lambda _: not self.over, loader)

    @property
    def due(self) -> bool:
        return len(self.losses) % 3 == 0 or bool(self.over)

    @property
    def over(self) -> str:
        return "max_seconds" if len(self.losses) >= self._most_steps else ""

    def step(self, loss: Any = None, *, samples: int) -> None:
        import torch  # not where a check needs the clock alone

        self.losses.append(torch.as_tensor(math.nan if loss is None else loss).item())
        self.samples.append(samples)

    def evaluate(self, **metrics: float) -> bool:
        self.evaluated.append(metrics)
        return bool(self.over)

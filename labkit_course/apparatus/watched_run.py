"""What stands for `labkit.Run` where a check watches a training loop."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from typing import Any

import torch


class WatchedRun:
    """Keeps what a loop tells its run, and writes nothing; an evaluation is due after each third step."""

    def __init__(
        self,
        name: str = "",
        *,
        seed: int | None = None,
        most_batches: int | None = None,
        most_steps: float = math.inf,
        entered: list[WatchedRun] | None = None,
        **_: Any,
    ):
        """Describe a run.

        Args:
            name: of the job, as `labkit.Run` takes it.
            seed: as `labkit.Run` takes it.
            most_batches: after how many an epoch ends; None: all that there are.
            most_steps: after how many the run is over, and an evaluation always due.
            entered: takes the runs whose blocks are entered, in order.
        """
        self.seed, self._most_batches, self._most_steps, self._entered = seed, most_batches, most_steps, entered
        self.epochs_asked: int | None = None
        self.losses: list[float] = []
        self.samples: list[int] = []
        self.evaluated: list[dict[str, float]] = []

    def __enter__(self) -> WatchedRun:
        if self._entered is not None:
            self._entered.append(self)
        return self

    def __exit__(self, *_: Any) -> None: ...

    def epochs(self, count: int) -> Iterator[int]:
        self.epochs_asked = count
        yield from itertools.takewhile(lambda _: not self.over, range(count))

    def batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        yield from itertools.takewhile(lambda _: not self.over, itertools.islice(loader, self._most_batches))

    @property
    def due(self) -> bool:
        return len(self.losses) % 3 == 0 or bool(self.over)

    @property
    def over(self) -> str:
        return "max_seconds" if len(self.losses) >= self._most_steps else ""

    def step(self, loss: Any = None, *, samples: int) -> None:
        self.losses.append(torch.as_tensor(math.nan if loss is None else loss).item())
        self.samples.append(samples)

    def evaluate(self, **metrics: float) -> bool:
        self.evaluated.append(metrics)
        return bool(self.over)

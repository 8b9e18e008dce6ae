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
        entered: list[WatchedRun] | None = None,
        **_: Any,
    ):
        """Describe a run.

        Args:
            name: of the job, as `labkit.Run` takes it.
            seed: as `labkit.Run` takes it.
            most_batches: after how many an epoch ends; None: all that there are.
            entered: takes the runs whose blocks are entered, in order.
        """
        self.seed, self.over, self._most_batches, self._entered = seed, "", most_batches, entered
        self.losses: list[float] = []
        self.samples: list[int] = []
        self.evaluated: list[float] = []

    def __enter__(self) -> WatchedRun:
        if self._entered is not None:
            self._entered.append(self)
        return self

    def __exit__(self, *_: Any) -> None: ...

    def epochs(self, count: int) -> Iterator[int]:
        yield from range(count)

    def batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        yield from itertools.islice(loader, self._most_batches)

    @property
    def due(self) -> bool:
        return len(self.losses) % 3 == 0

    def step(self, loss: Any = None, *, samples: int) -> None:
        self.losses.append(torch.as_tensor(math.nan if loss is None else loss).item())
        self.samples.append(samples)

    def evaluate(self, **metrics: float) -> bool:
        self.evaluated += metrics.values()
        return False

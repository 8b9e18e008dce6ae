"""What a job hands to the loop: data, model, loss and metrics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from torch import Tensor, nn


class Job(Protocol):
    """One training task; the loop knows nothing else about clicks or speech."""

    name: str
    """"dlrm" or "speech"."""
    model: nn.Module
    sparse_parameters: tuple[str, ...]
    """Names of the parameters whose gradients are sparse."""
    metrics: tuple[str, ...]
    """Names of what `evaluate` returns."""
    train_samples: int
    """Samples of the training split."""

    def batches(self, epoch: int, start: int) -> Iterator[tuple[Any, int]]:
        """Yield (batch on the device, its samples) from batch `start` on, in an order fixed by seed and epoch."""

    def describe(self) -> str:
        """All that decides how long a step takes on a given machine, but for the optimiser."""

    def num_batches(self, epoch: int) -> int:
        """Batches of one epoch; every epoch has as many."""

    def loss(self, batch: Any) -> Tensor:
        """The mean loss (scalar) of a batch that `batches` gave."""

    def evaluate(self, model: nn.Module, split: str) -> dict[str, float]:
        """The metrics of `model` on "validation" or "test"; the caller sets precision and evaluation mode."""

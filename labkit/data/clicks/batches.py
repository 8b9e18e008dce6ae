"""Batches of a click log's split, in an order fixed by seed and epoch, from any place on.

Shapes: B batch, D dense features, F categorical features, L lookups a bag.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from labkit.data.clicks.order import EpochOrder
from labkit.data.clicks.prepared import ClickSplit

ClickBatch = tuple[Tensor, Tensor, Tensor]
"""dense float32 (B, D), categorical int32 (B, F, L), label float32 (B,)"""


class ClickBatches:
    """A loader of shuffled rows that can start anywhere: what `run.batches` takes."""

    def __init__(self, split: ClickSplit, batch_size: int, seed: int):
        self.split, self.batch_size, self.seed = split, batch_size, seed
        self._epoch = -1

    def __len__(self) -> int:
        return -(-len(self.split) // self.batch_size)

    def __iter__(self) -> Iterator[ClickBatch]:
        """The next epoch."""
        self._epoch += 1
        return self.at(self._epoch, 0)

    def at(self, epoch: int, start: int) -> Iterator[ClickBatch]:
        """The batches of an epoch, from number `start` on."""
        self._epoch = epoch
        order = EpochOrder(len(self.split), self.seed, epoch)
        for index in range(start, len(self)):
            yield _load(self.split, order.rows(index * self.batch_size, (index + 1) * self.batch_size))


def in_order(split: ClickSplit, batch_size: int) -> Iterator[ClickBatch]:
    """The rows of a split as they lie."""
    for start in range(0, len(split), batch_size):
        yield _load(split, slice(start, start + batch_size))


def _load(split: ClickSplit, rows: np.ndarray | slice) -> ClickBatch:
    # np.array copies a slice of the memory map, which is read-only, into memory torch may own
    dense, categorical, label = (
        np.array(split.dense[rows]),
        np.array(split.categorical[rows]),
        np.array(split.label[rows], np.float32),
    )
    return torch.from_numpy(dense), torch.from_numpy(categorical), torch.from_numpy(label)

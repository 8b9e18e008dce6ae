"""Batches of a click log's split, in an order fixed by seed and epoch, from any place on.

Shapes: B batch, D dense features, F categorical features, L lookups a bag.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from labkit.data.clicks.prepared import ClickSplit

BLOCK_ROWS = 2**16
"""Rows that lie together on disk: a window touches few stretches of the file."""

WINDOW_ROWS = 2**24
"""Rows that are shuffled one by one, together: 128 MiB of numbers, twice that while they are drawn. A click log with
fewer is shuffled whole."""

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


class EpochOrder:
    """A permutation of `num_rows` rows, fixed by seed and epoch, of which one window is known at a time.

    Blocks of neighbouring rows come in random order, and the rows of each window of blocks again in random order, as
    input pipelines with a shuffle buffer do.
    """

    def __init__(
        self, num_rows: int, seed: int, epoch: int, *, block_rows: int = BLOCK_ROWS, window_rows: int = WINDOW_ROWS
    ):
        self.num_rows, self._seed, self._epoch = num_rows, seed, epoch
        self._block_rows = num_rows if num_rows <= window_rows else block_rows
        num_blocks = -(-num_rows // max(1, self._block_rows))
        blocks = np.random.default_rng((seed, epoch)).permutation(num_blocks)
        per_window = max(1, window_rows // max(1, self._block_rows))
        self._windows = [blocks[start : start + per_window] for start in range(0, num_blocks, per_window)]
        sizes = [sum(len(self._rows_of(block)) for block in window) for window in self._windows]
        self._starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self._known: tuple[int, np.ndarray] = (-1, np.empty(0, np.int64))

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Row numbers int64 (stop − start,) at these places of the order."""
        stop = min(stop, self.num_rows)
        pieces = []
        while start < stop:
            window = int(np.searchsorted(self._starts, start, side="right")) - 1
            first, end = self._starts[window], min(stop, self._starts[window + 1])
            pieces.append(self._window(window)[start - first : end - first])
            start = end
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def _window(self, window: int) -> np.ndarray:
        if self._known[0] != window:
            self._known = (-1, np.empty(0, np.int64))  # let go of the old window before the new one is made
            blocks = [self._rows_of(block) for block in self._windows[window]]
            if len(blocks) == 1:
                rows = np.arange(blocks[0].start, blocks[0].stop)
            else:
                rows = np.concatenate([np.arange(block.start, block.stop) for block in blocks])
            np.random.default_rng((self._seed, self._epoch, window)).shuffle(rows)
            self._known = (window, rows)
        return self._known[1]

    def _rows_of(self, block: int) -> range:
        start = int(block) * self._block_rows
        return range(start, min(start + self._block_rows, self.num_rows))

"""The order in which an epoch visits the training rows, in memory that does not grow with their number."""

from __future__ import annotations

import numpy as np

BLOCK_ROWS = 2**16
"""Rows that lie together on disk: a window touches few stretches of the file."""

WINDOW_ROWS = 2**24
"""Rows that are shuffled one by one, together: 128 MiB of numbers, twice that while they are drawn. A click log with
fewer is shuffled whole."""


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

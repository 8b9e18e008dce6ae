"""Batches of a split of a click log, in an order fixed by seed and epoch, starting anywhere; and scores.

Shapes: B batch, D dense features, F categorical features, L lookups per bag.
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from labkit import UserError
from labkit.data.clicks.generate import auc
from labkit.data.clicks.load import ClickSplit

BLOCK_ROWS = 2**16
"""Neighbouring rows that stay in one window, so that a window reads few stretches of the file"""

WINDOW_ROWS = 2**24
"""Rows that are shuffled together: 128 MiB of row numbers, twice that while they are drawn. A click log with fewer rows
is shuffled as a whole."""

ClickBatch = tuple[Tensor, Tensor, Tensor]
"""dense float32 (B, D), categorical int32 (B, F, L), label float32 (B,)"""


class ClickBatches:
    """A loader of shuffled rows that can start anywhere, for `run.batches`."""

    def __init__(self, split: ClickSplit, batch_size: int, seed: int):
        self.split, self.batch_size, self.seed = split, batch_size, seed
        self._epoch = -1

    def __len__(self) -> int:
        return -(-len(self.split) // self.batch_size)

    def __iter__(self) -> Iterator[ClickBatch]:
        """The next epoch."""
        return self.at(self._epoch + 1, 0)

    def at(self, epoch: int, start: int) -> Iterator[ClickBatch]:
        """The batches of an epoch from number `start` on."""
        self._epoch = epoch
        for rows in self.rows(epoch, start):
            yield _load(self.split, rows)

    def rows(self, epoch: int, start: int = 0) -> Iterator[np.ndarray]:
        """Yield the row numbers int64 (B,) of an epoch's batches from number `start` on; seed and epoch fix the order.

        Blocks of neighbouring rows are shuffled, and then the rows of each window of blocks, as in input pipelines with
        a shuffle buffer. One window is in memory at a time.
        """
        num_rows, batch_size = len(self.split), self.batch_size
        block_rows = max(1, num_rows if num_rows <= WINDOW_ROWS else BLOCK_ROWS)
        blocks = np.random.default_rng((self.seed, epoch)).permutation(-(-num_rows // block_rows))
        skip, left, per_window = start * batch_size, np.empty(0, np.int64), max(1, WINDOW_ROWS // block_rows)
        for window, first in enumerate(range(0, len(blocks), per_window)):
            begins = blocks[first : first + per_window] * block_rows
            ends = np.minimum(begins + block_rows, num_rows)
            if skip >= (size := int((ends - begins).sum())):
                skip -= size
                continue
            rows = np.concatenate([np.arange(*span) for span in zip(begins, ends, strict=True)])
            np.random.default_rng((self.seed, epoch, window)).shuffle(rows)
            rows, skip = rows[skip:], 0
            while len(left) + len(rows) >= batch_size:
                taken = batch_size - len(left)
                yield np.concatenate([left, rows[:taken]])
                left, rows = left[:0], rows[taken:]
            left = np.concatenate([left, rows])
            del rows  # before the next window is made
        if len(left):
            yield left


def in_order(split: ClickSplit, batch_size: int) -> Iterator[ClickBatch]:
    """The rows of a split in the order in which they are stored."""
    for start in range(0, len(split), batch_size):
        yield _load(split, slice(start, start + batch_size))


def _load(split: ClickSplit, rows: np.ndarray | slice) -> ClickBatch:
    # np.array copies a slice of the read-only memory map into memory that torch may own
    dense, categorical, label = (np.array(part[rows]) for part in (split.dense, split.categorical, split.label))
    return torch.from_numpy(dense), torch.from_numpy(categorical), torch.from_numpy(label.astype(np.float32))


def click_metrics(label: np.ndarray, logit: np.ndarray) -> dict[str, float]:
    """AUC, log loss (nats), normalised entropy and accuracy of logits (N,) for labels 0 or 1 (N,).

    Normalised entropy is the log loss over the entropy of the base rate (He et al., ADKDD 2014, §3).

    >>> scores = click_metrics(np.array([0, 1, 1, 0]), np.array([-2.0, 1.0, 0.5, -1.0]))
    >>> scores["auc"], scores["accuracy"]
    (1.0, 1.0)
    """
    label, logit = (np.asarray(each, dtype=np.float64) for each in (label, logit))
    positives = label.sum()
    negatives = len(label) - positives
    if not positives or not negatives:
        raise UserError(
            f"this split has {int(positives)} positive and {int(negatives)} negative labels, so its AUC is "
            "undefined: use more rows, or check the positive values in the schema."
        )
    # log(1 + exp(-x)) for positives, log(1 + exp(x)) for negatives
    log_loss = np.logaddexp(0.0, np.where(label == 1, -logit, logit)).mean()
    rate = positives / len(label)
    entropy = -(rate * np.log(rate) + (1 - rate) * np.log(1 - rate))
    return {
        "auc": auc(label, logit),
        "log_loss": float(log_loss),
        "normalised_entropy": float(log_loss / entropy),
        "accuracy": float(((logit > 0) == (label == 1)).mean()),
    }

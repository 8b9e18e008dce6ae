"""Batches of utterances of like length, in an order fixed by seed and epoch, from any place on."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from labkit.data.speech.buckets import length_bucketed_batches
from labkit.data.speech.prepared import Batch, SpeechSplit


class BucketedBatches:
    """A loader that can start anywhere: what `run.batches` takes."""

    def __init__(self, split: SpeechSplit, batch_size: int, seed: int):
        self.split, self.batch_size, self.seed = split, batch_size, seed
        self._epoch = -1

    def __len__(self) -> int:
        return len(length_bucketed_batches(self.split.lengths, self.batch_size, self.seed, 0))

    def __iter__(self) -> Iterator[Batch]:
        """The next epoch."""
        self._epoch += 1
        return self.at(self._epoch, 0)

    def at(self, epoch: int, start: int) -> Iterator[Batch]:
        """The batches of an epoch, from number `start` on."""
        self._epoch = epoch
        for utterances in length_bucketed_batches(self.split.lengths, self.batch_size, self.seed, epoch)[start:]:
            yield self.split.batch(utterances)


class ByLength:
    """The utterances of a split, shortest first, as often as they are asked for."""

    def __init__(self, split: SpeechSplit, batch_size: int):
        self.split, self.batch_size = split, batch_size

    def __iter__(self) -> Iterator[Batch]:
        order = np.argsort(np.asarray(self.split.lengths), kind="stable")
        for start in range(0, len(order), self.batch_size):
            yield self.split.batch(order[start : start + self.batch_size])

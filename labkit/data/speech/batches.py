"""Batches of utterances of like length, in an order fixed by seed and epoch, from any place on."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from labkit.data.speech.prepared import Batch, SpeechSplit

POOL_BATCHES = 32
"""Batches whose utterances are sorted together: more means less padding and less chance in who meets whom."""


def length_bucketed_batches(lengths: np.ndarray, batch_size: int, seed: int, epoch: int) -> list[np.ndarray]:
    """Cut one epoch into batches: every index once, the order a function of seed and epoch alone.

    A random order is cut into pools of 32 batches, each pool is sorted by length and cut into batches, and the
    batches are shuffled.

    Args:
        lengths: frames of each utterance (N,).

    Returns:
        Arrays of indices; all but one hold `batch_size` of them.
    """
    rng = np.random.default_rng((seed, epoch))
    order = rng.permutation(len(lengths))
    batches = []
    for start in range(0, len(order), batch_size * POOL_BATCHES):
        pool = order[start : start + batch_size * POOL_BATCHES]
        pool = pool[np.argsort(np.asarray(lengths)[pool], kind="stable")]
        batches += [pool[first : first + batch_size] for first in range(0, len(pool), batch_size)]
    return [batches[index] for index in rng.permutation(len(batches))]


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

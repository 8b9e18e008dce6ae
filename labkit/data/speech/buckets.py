"""Batches of utterances of like length, so that little of a batch is padding."""

from __future__ import annotations

import numpy as np

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

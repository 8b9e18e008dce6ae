"""Batches of utterances of like length."""

from __future__ import annotations

import numpy as np
import pytest

from labkit.data.speech.buckets import length_bucketed_batches

LENGTHS = np.random.default_rng(0).integers(50, 400, 1003).astype(np.int32)


def padded_frames(batches: list[np.ndarray]) -> int:
    return sum(len(batch) * int(LENGTHS[batch].max()) for batch in batches)


@pytest.mark.parametrize("batch_size", [1, 16, 1003, 5000])
def test_an_epoch_has_every_utterance_once_in_full_batches(batch_size):
    batches = length_bucketed_batches(LENGTHS, batch_size, seed=0, epoch=0)
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(LENGTHS)))
    sizes = sorted(len(batch) for batch in batches)
    assert sizes[1:] == [min(batch_size, len(LENGTHS))] * (len(batches) - 1)


def test_the_order_is_a_function_of_seed_and_epoch():
    def order(seed, epoch):
        return [batch.tolist() for batch in length_bucketed_batches(LENGTHS, 16, seed, epoch)]

    assert order(3, 5) == order(3, 5)
    assert order(3, 5) != order(3, 6)
    assert order(3, 5) != order(4, 5)


def test_buckets_spare_most_of_the_padding():
    bucketed = padded_frames(length_bucketed_batches(LENGTHS, 16, seed=0, epoch=0))
    shuffled = np.random.default_rng(0).permutation(len(LENGTHS))
    at_random = padded_frames([shuffled[start : start + 16] for start in range(0, len(LENGTHS), 16)])
    real = int(LENGTHS.sum())
    assert bucketed - real < 0.25 * (at_random - real)


def test_batches_do_not_come_in_the_order_of_their_length():
    longest = [int(LENGTHS[batch].max()) for batch in length_bucketed_batches(LENGTHS, 16, seed=0, epoch=0)]
    assert abs(np.corrcoef(longest, np.arange(len(longest)))[0, 1]) < 0.5

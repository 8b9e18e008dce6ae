"""Batches of utterances of like length."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from labkit.data.speech import BucketedBatches, ByLength, load_speech, textbook_loader

LENGTHS = np.random.default_rng(0).integers(50, 400, 1003).astype(np.int32)


def bucketed_rows(batch_size: int, seed: int = 0, epoch: int = 0) -> list[np.ndarray]:
    return BucketedBatches(SimpleNamespace(lengths=LENGTHS), batch_size, seed).rows(epoch)


def test_batches_from_the_middle_of_an_epoch_are_those_of_the_whole():
    batches = BucketedBatches(load_speech("shipped").split("train"), 16, seed=3)
    first, second = list(batches), list(batches)
    assert len(first) == len(batches)
    assert first[0].texts != second[0].texts
    assert [batch.texts for batch in second[2:]] == [batch.texts for batch in batches.at(1, 2)]


def test_a_textbooks_loader_has_the_same_utterances_padded_to_the_longest():
    split = load_speech("shipped").split("test")
    prepared, textbook = list(ByLength(split, 8)), list(textbook_loader("shipped", "test", 8, shuffle=False))
    texts = [sorted(text for batch in batches for text in batch.texts) for batches in (prepared, textbook)]
    assert texts[0] == texts[1]
    (chosen,) = textbook_loader("shipped", "test", 8, shuffle=False, kept=[5, 2])
    assert chosen.texts == [split.texts[5], split.texts[2]]
    for batch in textbook:
        assert batch.features.shape == (len(batch.texts), int(batch.feature_lengths.max()), 80)
        for features, length in zip(batch.features, batch.feature_lengths, strict=True):
            assert not features[length:].any()
            torch.testing.assert_close(features[:length].mean(0), torch.zeros(80), rtol=0, atol=1e-4)


@pytest.mark.parametrize("batch_size", [1, 16, 1003, 5000])
def test_an_epoch_has_every_utterance_once_in_full_batches_of_its_seed(batch_size):
    batches = bucketed_rows(batch_size)
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(LENGTHS)))
    sizes = sorted(len(batch) for batch in batches)
    assert sizes[1:] == [min(batch_size, len(LENGTHS))] * (len(batches) - 1)
    texts = [str([batch.tolist() for batch in bucketed_rows(batch_size, *which)])
             for which in ((0, 0), (0, 0), (0, 1), (1, 0))]  # fmt: skip
    assert texts[0] == texts[1] and len(set(texts)) == 3


def test_buckets_spare_most_of_the_padding_and_do_not_come_in_the_order_of_their_length():
    bucketed = bucketed_rows(16)
    at_random = np.array_split(np.random.default_rng(0).permutation(len(LENGTHS)), len(bucketed))
    padding = [sum((LENGTHS[batch].max() - LENGTHS[batch]).sum() for batch in each) for each in (bucketed, at_random)]
    assert padding[0] < 0.25 * padding[1]
    longest = [int(LENGTHS[batch].max()) for batch in bucketed]
    assert abs(np.corrcoef(longest, np.arange(len(longest)))[0, 1]) < 0.5

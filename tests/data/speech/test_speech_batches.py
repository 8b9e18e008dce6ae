import torch

from labkit.data.speech import load_speech
from labkit.data.speech.batches import BucketedBatches, ByLength
from labkit.data.speech.waveforms import textbook_loader


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
    for batch in textbook:
        assert batch.features.shape == (len(batch.texts), int(batch.feature_lengths.max()), 80)
        for features, length in zip(batch.features, batch.feature_lengths, strict=True):
            assert not features[length:].any()
            torch.testing.assert_close(features[:length].mean(0), torch.zeros(80), rtol=0, atol=1e-4)

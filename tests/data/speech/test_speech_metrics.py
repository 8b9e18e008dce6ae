import pytest

from labkit.data.speech.metrics import speech_metrics


def test_error_rates_count_over_all_utterances_together():
    # one wrong character of 17 and one wrong word of 4: each utterance counts by its length
    scores = speech_metrics(["one", "two three four"], ["onx", "two three four"])
    assert scores == {"cer": pytest.approx(1 / 17), "wer": pytest.approx(1 / 4)}

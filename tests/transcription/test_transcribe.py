"""Which recordings are normalised together."""

import numpy as np
import pytest
import soundfile
from made_recogniser import tiny_model, write_speech_run

from labkit.data.speech import Voice
from labkit.transcription import Recogniser, read_recogniser
from labkit.transcription.transcripts import find_recordings, transcribe


@pytest.fixture
def voices(tmp_path):
    """Waves of two folders, anna's and ben's, two each, of which the second is louder."""
    waves = {}
    for speaker in ("anna", "ben"):
        (tmp_path / speaker).mkdir()
        for number in (1, 2):
            rng = np.random.default_rng(len(waves))
            wave = (0.1 * number * rng.normal(size=16_000)).clip(-1, 1)
            soundfile.write(tmp_path / speaker / f"{number}.wav", wave, 16_000, subtype="FLOAT")
            waves[speaker, number] = wave.astype(np.float32)
    return waves


def outputs(recogniser, tmp_path, **options) -> list[np.ndarray]:
    recordings = find_recordings([tmp_path / "anna", tmp_path / "ben"])
    return [each.heard.log_probabilities for each in transcribe(recogniser, recordings, **options)]


def same(found, expected) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other.log_probabilities, atol=1e-4)  # orders of fp32 sums


def test_a_folder_is_one_voice_and_another_folder_another(tmp_path, voices):
    recogniser = Recogniser(tiny_model())
    anna, ben = ([voices[speaker, number] for number in (1, 2)] for speaker in ("anna", "ben"))
    same(outputs(recogniser, tmp_path), recogniser.hear(anna) + recogniser.hear(ben))


def test_by_file_each_is_a_voice(tmp_path, voices):
    recogniser = Recogniser(tiny_model())
    alone = [recogniser.hear([wave])[0] for wave in voices.values()]
    same(outputs(recogniser, tmp_path, by_file=True), alone)


@pytest.mark.parametrize("kernels", ["plain", "fast"])
def test_a_recogniser_knows_whether_it_was_trained_by_file(tmp_path, kernels):
    assert read_recogniser(write_speech_run(tmp_path, kernels=kernels)).by_file == (kernels == "plain")


def test_lots_of_one_voice_are_heard_with_all_before_them(tmp_path, voices, monkeypatch):
    monkeypatch.setattr("labkit.transcription.transcripts.LOT", 1)
    recogniser, expected = Recogniser(tiny_model()), []
    for speaker in ("anna", "ben"):
        voice = Voice("log-mel")
        expected += [recogniser.hear([voices[speaker, number]], voice)[0] for number in (1, 2)]
    same(outputs(recogniser, tmp_path), expected)

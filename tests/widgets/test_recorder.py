"""The recorder: what arrives is taken or told of; and a voice from a browser's microphone to a transcript."""

import json

import numpy as np
import pytest
import soundfile
import torch
from jupyter_lab import wait_for
from scipy.signal import correlate

from labkit.data.speech import read_wave
from labkit.data.speech.alphabet import Alphabet
from labkit.data.speech.batches import WaveformUtterances
from labkit.data.speech.prepared import padded
from labkit.errors import UserError
from labkit.jobs.presets import get_preset
from labkit.jobs.speech import loss_of
from labkit.models.speech import SpeechConfig, SpeechModel
from labkit.widgets import Recorder

SAID, BY_HEART = 5, range(0, 80, 5)
"""The utterance of the validation split that is spoken into the microphone, and those that a model learns by heart"""


def tone(seconds: float, rate_hz: int) -> np.ndarray:
    return (0.5 * np.sin(2 * np.pi * 440 * np.arange(round(seconds * rate_hz)) / rate_hz)).astype(np.float32)


def sent(content: dict, data: bytes, recorder: Recorder | None = None) -> Recorder:
    """A recorder to which a browser sent this."""
    recorder = recorder or Recorder()
    recorder._handle_custom_msg(content, [memoryview(data)])
    return recorder


@pytest.mark.parametrize("rate_hz", [8_000, 16_000, 44_100, 48_000])
def test_samples_of_any_rate_become_float32_at_16_khz_and_observers_are_told(rate_hz):
    recorder, seen = Recorder(), []
    assert recorder.wave is None
    recorder.observe(lambda change: seen.append(change.new), "wave")
    for _ in range(2):  # the same length twice, too
        sent({"rate_hz": rate_hz}, tone(1.0, rate_hz).tobytes(), recorder)
    assert len(seen) == 2 and seen[1] is recorder.wave and recorder.wave.dtype == np.float32
    middle = slice(500, -500)  # the filter rings at both ends
    np.testing.assert_allclose(recorder.wave[middle], tone(1.0, 16_000)[middle], atol=0.01)
    assert "1.00 s, 16,000 samples at 16 kHz" in recorder.status
    torch.from_numpy(recorder.wave).add_(0)  # may be written


@pytest.mark.parametrize(
    ("wave", "words"),
    [
        (tone(0.1, 48_000), "0.10 s is too short for a word. Press Record, speak"),
        (tone(0.0, 48_000), "0.00 s is too short"),
        (tone(21.0, 48_000), "21.0 s is too long, 20 s are the most"),
        (np.zeros(48_000, np.float32), "is silent: every sample is 0. Switch the microphone on"),
        (np.full(48_000, np.nan, np.float32), "samples that are not numbers. Record it again"),
    ],
)
def test_what_cannot_be_used_is_told_and_leaves_what_is_there(wave, words):
    recorder = sent({"rate_hz": 48_000}, tone(1.0, 48_000).tobytes())
    before = recorder.wave
    sent({"rate_hz": 48_000}, wave.tobytes(), recorder)
    assert words in recorder.status and recorder.wave is before


@pytest.mark.parametrize("suffix", ["wav", "flac", "ogg", "mp3"])
def test_a_chosen_file_is_the_wave_that_read_wave_reads(tmp_path, suffix):
    path = tmp_path / f"me.{suffix}"
    soundfile.write(path, np.stack([tone(1.0, 44_100), np.zeros(44_100)], 1), 44_100)
    recorder = sent({"file": path.name}, path.read_bytes())
    assert recorder.status.startswith(f"me.{suffix} is here: 1.")
    np.testing.assert_array_equal(recorder.wave, read_wave(path))
    assert np.abs(recorder.wave[4000:12_000]).max() == pytest.approx(0.25, abs=0.02)  # the mean of both channels


def test_a_file_that_is_no_audio_is_told_without_the_folder_that_it_was_read_from(tmp_path):
    recorder = sent({"file": "notes.wav"}, b"no audio at all")
    assert recorder.status.startswith("The audio file notes.wav cannot be decoded") and recorder.wave is None
    assert "WAV, FLAC" in sent({"file": "notes.raw"}, b"").status
    soundfile.write(tmp_path / "nan.wav", np.full(16_000, np.nan), 16_000, subtype="FLOAT")
    assert "NaN" in sent({"file": "nan.wav"}, (tmp_path / "nan.wav").read_bytes()).status
    with pytest.raises(UserError, match=r"me\.wav: There is no such file"):
        read_wave(tmp_path / "me.wav")

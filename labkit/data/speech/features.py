"""Features of speech: 80 log-mel bins per frame for many utterances at once, normalised for each speaker.

Frames are 25 ms long and 10 ms apart. Frame t is centred on sample 160·t, with zeros beyond both ends, so that the
padding of a batch changes nothing: an utterance of n samples has 1 + n // 160 frames.

N utterances, n samples, T frames, F = 80 bins.
"""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from labkit.data.speech.audio import SAMPLE_RATE_HZ

MEL_BINS = 80
HOP = SAMPLE_RATE_HZ // 100
WINDOW = SAMPLE_RATE_HZ // 40
FFT = 512
"""The power of two above the window; with 400 points the lowest of 80 mel bands would contain no frequency"""
FLOOR = 1e-6
"""Added to the energies: below the noise of 16-bit speech, so that digital silence does not become −∞"""
BATCH_SAMPLES = 10 * SAMPLE_RATE_HZ
"""Samples of a batch, including padding: ten seconds, which fit in a core's cache (benchmarks/speech_features.py)"""
VALLEY = 0.01
"""Share of an utterance's mean energy in a bin that is added to its energies. How far silence is below speech depends
on the room and the recorder, and a model trained on few of them takes it for speech (docs/performance.md)."""
MIN_DEVIATION = 0.1
"""Least deviation that a bin is divided by, so that an empty one (above 4 kHz in resampled 8 kHz audio) is not
amplified; of logarithms, and of energies as a share of their mean"""


class Kind(NamedTuple):
    """A kind of features."""

    bins: int
    """Numbers per frame"""
    neighbours: bool = True
    """Whether adjacent bins are adjacent frequencies"""


KINDS = {"log-mel": Kind(MEL_BINS), "mel": Kind(MEL_BINS), "mfcc": Kind(40, neighbours=False)}
"""Logarithms of mel energies, the energies, and the first cosine terms of the logarithms"""


def frame_count(samples: int) -> int:
    """The number of frames of an utterance with `samples` at 16 kHz."""
    return 1 + samples // HOP


def features_of(waves: list[np.ndarray], kind: str) -> list[np.ndarray]:
    """Features float32 (T, F), of one of `KINDS`, of utterances float32 (n,) at 16 kHz, for a `Voice` to normalise.

    Mel energies stay logarithms until then, because these fit in 16 bits however loud the sound is.
    """
    energies = [np.exp(each) for each in log_mel(waves)]
    logarithms = [np.log(each + VALLEY * each.mean(0)) for each in energies]
    if kind == "mfcc":
        from scipy.fft import dct

        return [dct(one, norm="ortho")[:, : KINDS[kind].bins] for one in logarithms]
    return logarithms


def log_mel(waves: list[np.ndarray]) -> list[np.ndarray]:
    """Log-mel features float32 (T, F) of utterances float32 (n,) at 16 kHz, computed in batches of similar length."""
    features: list[np.ndarray] = [np.empty(0)] * len(waves)
    by_length = sorted(range(len(waves)), key=lambda index: len(waves[index]), reverse=True)
    while by_length:
        # the first is the longest of the rest, so it determines how many fit
        fit = max(1, BATCH_SAMPLES // max(1, len(waves[by_length[0]])))
        chosen, by_length = by_length[:fit], by_length[fit:]
        for index, values in zip(chosen, log_mel_batch([waves[index] for index in chosen]), strict=True):
            features[index] = values
    return features


@torch.inference_mode()
@torch.autocast("cpu", enabled=False)  # a loader may run inside the autocast block of a model
def log_mel_batch(waves: list[np.ndarray]) -> list[np.ndarray]:
    """Log-mel features of utterances computed together, padded to the longest."""
    padded = torch.zeros(len(waves), max(len(wave) for wave in waves))  # (N, n)
    for row, wave in zip(padded, waves, strict=True):
        row[: len(wave)] = torch.from_numpy(wave)
    window = torch.hann_window(WINDOW)
    spectrum = torch.stft(padded, FFT, HOP, WINDOW, window, pad_mode="constant", return_complex=True)  # (N, FFT/2+1, T)
    mel = spectrum.abs().pow(2).transpose(1, 2) @ mel_filters()  # (N, T, F)
    mel = (mel + FLOOR).log_().numpy()
    return [values[: frame_count(len(wave))] for values, wave in zip(mel, waves, strict=True)]


@functools.cache
def mel_filters() -> torch.Tensor:
    """Weights float32 (FFT / 2 + 1, F) of each frequency in each bin: triangles of equal area on Slaney's mel scale.

    The scale is linear up to 1,000 Hz (15 mel), then logarithmic (Slaney, Auditory Toolbox, 1998). Equal, bit by bit,
    to those of `torchaudio.transforms.MelSpectrogram(mel_scale="slaney", norm="slaney")` 2.11.
    """
    log_step = math.log(6.4) / 27  # of a mel above 1,000 Hz
    highest_mel = 15 + math.log(SAMPLE_RATE_HZ / 2 / 1000) / log_step
    mels = torch.linspace(0, highest_mel, MEL_BINS + 2)
    edges = torch.where(mels < 15, mels * (200 / 3), 1000 * torch.exp(log_step * (mels - 15)))  # Hz, (F + 2,)
    distance = edges - torch.linspace(0, SAMPLE_RATE_HZ // 2, FFT // 2 + 1)[:, None]  # (FFT / 2 + 1, F + 2)
    width = edges.diff()
    rising, falling = -distance[:, :-2] / width[:-1], distance[:, 2:] / width[1:]
    return torch.minimum(rising, falling).clamp(min=0) * (2 / (edges[2:] - edges[:-2]))


class Voice:
    """Mean and deviation of each bin over everything that one speaker has said so far.

    Normalising by them removes loudness and the colour of voice, microphone and room, but keeps what distinguishes
    short words. Mean and variance over a single word of 0.3 s would mostly describe the word itself, so all utterances
    of a speaker are taken together.
    """

    def __init__(self, kind: str):
        """`kind` is that of the features, one of `KINDS`."""
        self._are_energies = kind == "mel"
        self._frames, self._sum, self._squares = 0, np.zeros(1), np.zeros(1)

    def listen(self, features: np.ndarray) -> None:
        """Include features (T, F)."""
        values = self._values(features)
        self._frames += len(values)
        self._sum = self._sum + values.sum(0)
        self._squares = self._squares + np.square(values).sum(0)

    def normalised(self, features: np.ndarray) -> np.ndarray:
        """Features float32 (T, F), with mean 0 and variance 1 per bin over the frames of this voice."""
        mean = self._sum / self._frames
        deviation = np.sqrt(np.maximum(self._squares / self._frames - mean**2, 0))
        deviation = deviation.clip(MIN_DEVIATION * (mean if self._are_energies else 1.0))
        return ((self._values(features) - mean) / deviation).astype(np.float32)

    def _values(self, features: np.ndarray) -> np.ndarray:
        values = features.astype(np.float64)
        return np.exp(values) if self._are_energies else values


def normalise_speakers(path: Path, keys: list[tuple], frames: list[int], kind: str) -> None:
    """Rewrite a file of features, normalised for each speaker over all of their frames.

    Splits are normalised separately, so that no information of the test split reaches training. The file has float16
    (sum of frames, F), utterance after utterance; `keys` has the split and speaker of each.
    """
    features = np.memmap(path, np.float16, "r+", shape=(sum(frames), KINDS[kind].bins))
    spans: dict[tuple, list[slice]] = defaultdict(list)
    for key, count, end in zip(keys, frames, np.cumsum(frames), strict=True):
        spans[key].append(slice(end - count, end))
    for own in spans.values():
        voice = Voice(kind)
        for span in own:
            voice.listen(features[span])
        for span in own:
            features[span] = voice.normalised(features[span])
    features.flush()

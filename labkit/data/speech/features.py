"""80 log-mel bins a frame, computed for many utterances at once.

Frames are 25 ms long and 10 ms apart; frame t is centred on sample 160·t, with zeros beyond both ends, so that
a batch's padding changes nothing: an utterance of n samples has 1 + n // 160 frames.

N utterances, n samples, T frames, F = 80 bins.
"""

from __future__ import annotations

import functools

import numpy as np
import torch

from labkit.data.speech.audio import SAMPLE_RATE_HZ
from labkit.data.torchaudio_cpu import import_torchaudio

MEL_BINS = 80
HOP = SAMPLE_RATE_HZ // 100
WINDOW = SAMPLE_RATE_HZ // 40
FFT = 512
"""The power of two above the window: with 400 points the lowest of 80 mel bands would hold no frequency."""
FLOOR = 1e-6
"""Added to the energies: quieter than the noise of 16-bit speech, so digital silence has no deep valleys."""
BATCH_SAMPLES = 10 * SAMPLE_RATE_HZ
"""Samples of a batch, padding included: ten seconds, which stay in a core's cache (benchmarks/speech_features.py)."""


def frame_count(samples: int) -> int:
    """Frames of an utterance of that many samples at 16 kHz."""
    return 1 + samples // HOP


def log_mel(waves: list[np.ndarray]) -> list[np.ndarray]:
    """Features of utterances, computed in batches of like length.

    Args:
        waves: float32 (n,) each, at 16 kHz.

    Returns:
        float32 (T, F) each, in the same order.
    """
    features: list[np.ndarray] = [np.empty(0)] * len(waves)
    by_length = sorted(range(len(waves)), key=lambda index: len(waves[index]), reverse=True)
    while by_length:
        # The first is the longest of those that are left: it says how many fit.
        fit = max(1, BATCH_SAMPLES // max(1, len(waves[by_length[0]])))
        chosen, by_length = by_length[:fit], by_length[fit:]
        for index, values in zip(chosen, log_mel_batch([waves[index] for index in chosen]), strict=True):
            features[index] = values
    return features


def log_mel_batch(waves: list[np.ndarray]) -> list[np.ndarray]:
    """Features of utterances computed together, padded to the longest."""
    padded = torch.zeros(len(waves), max(len(wave) for wave in waves))  # (N, n)
    for row, wave in zip(padded, waves, strict=True):
        row[: len(wave)] = torch.from_numpy(wave)
    lengths = torch.tensor([frame_count(len(wave)) for wave in waves])
    with torch.inference_mode():
        mel = (mel_spectrogram()(padded) + FLOOR).log_().transpose(1, 2)  # (N, T, F)
    return [values[:length] for values, length in zip(mel.numpy(), lengths.tolist(), strict=True)]


@functools.lru_cache
def mel_spectrogram() -> torch.nn.Module:
    """torchaudio's transform of waves (..., n) to energies (..., F, T)."""
    import_torchaudio()
    from torchaudio.transforms import MelSpectrogram

    return MelSpectrogram(
        SAMPLE_RATE_HZ,
        n_fft=FFT,
        win_length=WINDOW,
        hop_length=HOP,
        n_mels=MEL_BINS,
        mel_scale="slaney",
        norm="slaney",
        pad_mode="constant",
    )

"""Augmentation of speech in training, so that a recogniser does not memorise the voices: other speeds and vocal tracts,
noise, and gaps.

Shapes: B batch, T frames, F bins. Features have mean 0 and variance 1 per bin.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

HIGHEST_HZ = 8000.0
FRAMES_MULTIPLE = 32
"""Batches of changed speed are padded to a multiple of this, because a CPU keeps kernels for each shape"""
STEP = math.log(6.4) / 27
"""Logarithm of Hz per mel above 1,000 Hz"""


class Warping(nn.Module):
    """While training, changes the speed of each utterance and stretches its frequencies (on the features' mel scale).

    Speed as in Ko et al. (Interspeech 2015), vocal tracts as in Jaitly and Hinton (2013), both by resampling features.
    """

    def __init__(self, speed: float, tract: float):
        """Factors are drawn from 1 - speed to 1 + speed, and from 1 - tract to 1 + tract."""
        super().__init__()
        self.speed, self.tract = speed, tract

    def forward(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return features (B, T', F) and their lengths (B,) for features (B, T, F), zero padded."""
        if not self.training or not (self.speed or self.tract):
            return features, lengths
        size, _, bins = features.shape
        on = {"device": features.device}
        speed = 1 + self.speed * (2 * torch.rand(size, **on) - 1)
        tract = 1 + self.tract * (2 * torch.rand(size, 1, **on) - 1)
        new = (lengths / speed).round().long().clamp(min=1)
        longest = -(-int(new.max()) // FRAMES_MULTIPLE) * FRAMES_MULTIPLE
        times = speed[:, None] * torch.arange(longest, **on)  # (B, T')
        mels = torch.arange(1, bins + 1, **on) * (_mel(torch.tensor(HIGHEST_HZ)) / (bins + 1)).item()  # (F,)
        places = _mel(tract * _hz(mels)) / mels[0] - 1  # (B, F)
        kept = torch.arange(times.shape[1], **on) < new[:, None]
        # frequencies by a product: an index would transpose the memory layout, and the convolutions would copy it
        return (_at(features, times) * kept.unsqueeze(2)) @ _between(places, bins), new


def _mel(hz: Tensor) -> Tensor:
    """Slaney's mel scale, as in the features: linear up to 1,000 Hz, then logarithmic."""
    return torch.where(hz < 1000, hz * 3 / 200, 15 + (hz.clamp(min=1000) / 1000).log() / STEP)


def _hz(mels: Tensor) -> Tensor:
    return torch.where(mels < 15, mels * 200 / 3, 1000 * (STEP * (mels - 15)).exp())


def _between(places: Tensor, bins: int) -> Tensor:
    """Weights (B, F, M) that interpolate features (B, T, F) at places (B, M) between bins, clamped to the ends."""
    places = places.clamp(0, bins - 1).unsqueeze(1)
    numbers = torch.arange(bins, device=places.device)[:, None]
    return (1 - (numbers - places).abs()).clamp(min=0)


def _at(values: Tensor, places: Tensor) -> Tensor:
    """Interpolate values (B, N, C) at places (B, M) between them, clamped to the ends: (B, M, C)."""
    places = places.clamp(0, values.shape[1] - 1)
    below = places.long()
    share = (places - below).unsqueeze(2)
    rows = torch.arange(len(values), device=values.device)[:, None]
    return torch.lerp(values[rows, below], values[rows, (below + 1).clamp(max=values.shape[1] - 1)], share)


class Noise(nn.Module):
    """While training, adds noise, and tilts and shifts the spectrum of each utterance, as another room would."""

    def __init__(self, deviation: float):
        """`deviation` is that of the shift and the tilt, and the largest of the noise, in units of the features."""
        super().__init__()
        self.deviation = deviation

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        """Return features (B, T, F), still zero padded; `lengths` (B,) are those of the utterances."""
        if not self.training or not self.deviation:
            return features
        size, frames, bins = features.shape
        on = {"device": features.device}
        heard = (torch.arange(frames, **on) < lengths[:, None]).unsqueeze(2)  # (B, T, 1)
        loudness, colour = self.deviation * torch.randn(2, size, 1, 1, **on)
        tilt = colour * torch.linspace(-1, 1, bins, **on)
        noise = self.deviation * torch.rand(size, 1, 1, **on) * torch.randn_like(features)
        return features + heard * (loudness + tilt + noise)


class Masking(nn.Module):
    """While training, sets two stretches of bins and two of frames of each utterance to zero, the mean of the features.

    The masks of SpecAugment (Park et al., Interspeech 2019, §2).
    """

    STRETCHES = 2

    def __init__(self, bins: int, frames: int):
        """`bins` and `frames` are one more than the widest stretch; 0 disables that direction."""
        super().__init__()
        self.bins, self.frames = bins, frames

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        """Return masked features (B, T, F); `lengths` (B,) keeps the stretches of frames within the utterances."""
        if not self.training:
            return features
        _, frames, bins = features.shape
        if self.bins:
            covered = self._covered(bins, torch.full_like(lengths, bins), self.bins)
            features = features.masked_fill(covered.unsqueeze(1), 0.0)
        if self.frames:
            features = features.masked_fill(self._covered(frames, lengths, self.frames).unsqueeze(2), 0.0)
        return features

    def _covered(self, size: int, lengths: Tensor, widest: int) -> Tensor:
        """The positions inside a stretch: bool (B, size)."""
        shape = (self.STRETCHES, len(lengths), 1)
        width = torch.randint(widest, shape, device=lengths.device)
        start = (torch.rand(shape, device=lengths.device) * (lengths.view(1, -1, 1) - width).clamp(min=1)).long()
        place = torch.arange(size, device=lengths.device)
        return ((place >= start) & (place < start + width)).any(0)

"""SpecAugment's masks (Park et al., Interspeech 2019, §2): stretches of bins and frames that the model must miss."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Masking(nn.Module):
    """While training, sets two stretches of bins and two of frames of each utterance to zero, the features' mean."""

    STRETCHES = 2

    def __init__(self, bins: int, frames: int):
        """`bins` and `frames` are one more than the widest stretch; 0 leaves that direction alone."""
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
        """Where the stretches lie: bool (B, size)."""
        shape = (self.STRETCHES, len(lengths), 1)
        width = torch.randint(widest, shape, device=lengths.device)
        start = (torch.rand(shape, device=lengths.device) * (lengths.view(1, -1, 1) - width).clamp(min=1)).long()
        place = torch.arange(size, device=lengths.device)
        return ((place >= start) & (place < start + width)).any(0)

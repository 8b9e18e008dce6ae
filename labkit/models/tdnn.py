"""A time-delay network (Waibel et al., 1989; Peddinti et al., Interspeech 2015): linear layers over spliced frames.

All of its arithmetic is matrix products of a shape that CPUs run at full speed.

Shapes: B batch, T frames of F bins, T' outputs, C channels.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

DELAYS = (1, 2, 4)
"""How far the neighbours are that a block sees, one block after another."""


class Tdnn(nn.Module):
    """One linear layer over stretches of frames, then residual ones that see an output and two others around it."""

    def __init__(self, bins: int, channels: int, layers: int, window: int, stride: int, dropout: float):
        """`window` frames, `stride` apart, make an output; `layers` counts the residual blocks."""
        super().__init__()
        self.window, self.stride = window, stride
        self.first = SpliceBlock(bins * window, channels, dropout)
        self.blocks = nn.ModuleList(SpliceBlock(3 * channels, channels, dropout) for _ in range(layers))
        self.delays = [DELAYS[index % len(DELAYS)] for index in range(layers)]

    def forward(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return (B, T', C) and lengths (B,) for zero-padded features (B, T, F)."""
        batch, frames, _ = features.shape
        lengths = (lengths + self.stride - 1) // self.stride
        outputs = -(-frames // self.stride)
        left = (self.window - 1) // 2
        right = (outputs - 1) * self.stride + self.window - frames - left
        windows = F.pad(features, (0, 0, left, right)).unfold(1, self.window, self.stride)  # (B, T', F, window)
        mask = (torch.arange(outputs, device=lengths.device) < lengths.unsqueeze(1)).unsqueeze(2)  # (B, T', 1)
        x = self.first(windows.reshape(batch, outputs, -1)) * mask
        for block, delay in zip(self.blocks, self.delays, strict=True):
            x = (x + block(splice(x, delay))) * mask
        return x, lengths


class SpliceBlock(nn.Module):
    """Linear layer, batch norm, ReLU, dropout."""

    def __init__(self, before: int, after: int, dropout: float):
        super().__init__()
        self.linear = nn.Linear(before, after, bias=False)
        self.norm = nn.BatchNorm1d(after)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, T', after) for (B, T', before)."""
        y = self.linear(x)
        return self.dropout(F.relu(self.norm(y.flatten(0, 1)))).view_as(y)


def splice(x: Tensor, delay: int) -> Tensor:
    """Each output beside those `delay` before and after it, zero beyond the ends: (B, T', 3 C) for (B, T', C)."""
    padded = F.pad(x, (0, 0, delay, delay))
    count = x.shape[1]
    return torch.cat([padded[:, :count], x, padded[:, 2 * delay :]], dim=2)

"""Speech recognisers that write characters with CTC (Graves et al., 2006).

Shapes: B batch, T frames of 80 log-mel bins, T' outputs, C channels, V alphabet incl. blank (id 0).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labkit.errors import UserError
from labkit.models.masking import Masking

KINDS = ("conv", "lstm")


@dataclass(frozen=True)
class SpeechConfig:
    """The shape of one recogniser."""

    vocabulary: int
    """Characters of the alphabet, blank included."""
    kind: str
    """"conv" (residual convolutions only) or "lstm" (one convolution, then unidirectional LSTMs)."""
    channels: int
    """Width of the convolutions' output."""
    layers: int
    """Residual blocks ("conv") or LSTM layers ("lstm")."""
    hidden: int = 0
    """Width of the LSTMs; "lstm" only."""
    kernel: int = 5
    """Frames a convolution sees."""
    strides: tuple[int, ...] = (2, 2)
    """Stride of each subsampling convolution."""
    dropout: float = 0.05
    """Dropout after each layer, as a probability."""
    mask_bins: int = 0
    """Masked stretches of bins are narrower than this while training; 0 masks none."""
    mask_frames: int = 0
    """Masked stretches of frames are shorter than this while training; 0 masks none."""
    mel_bins: int = 80
    """Log-mel bins of a frame."""

    def __post_init__(self):
        if self.kind not in KINDS:
            raise UserError(f"kind {self.kind!r} of a speech model is unknown: choose one of {', '.join(KINDS)}.")

    @property
    def frames_an_output(self) -> int:
        """Input frames for one CTC output."""
        return math.prod(self.strides)


class SpeechModel(nn.Module):
    """Subsampling convolutions, then residual convolutions or LSTMs, then a linear layer over characters."""

    def __init__(self, config: SpeechConfig):
        super().__init__()
        self.config = config
        self.masking = Masking(config.mask_bins, config.mask_frames)
        widths = [config.mel_bins] + [config.channels] * len(config.strides)
        self.subsample = nn.ModuleList(
            ConvBlock(before, after, config.kernel, stride, config.dropout)
            for before, after, stride in zip(widths, widths[1:], config.strides, strict=False)
        )
        if config.kind == "conv":
            self.blocks = nn.ModuleList(
                ConvBlock(config.channels, config.channels, config.kernel, 1, config.dropout)
                for _ in range(config.layers)
            )
            width = config.channels
        else:
            # dropout of nn.LSTM sits between its layers
            self.lstm = nn.LSTM(config.channels, config.hidden, config.layers, batch_first=True, dropout=config.dropout)
            width = config.hidden
        self.characters = nn.Linear(width, config.vocabulary)

    def forward(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Return log-probabilities (B, T', V) and their lengths (B,) for log-mel features (B, T, 80), zero padded."""
        x = self.masking(features, lengths).transpose(1, 2)  # (B, 80, T)
        for block in self.subsample:
            lengths = (lengths + block.stride - 1) // block.stride
            x = block(x, _mask(lengths, -(-x.shape[2] // block.stride)))
        if self.config.kind == "conv":
            mask = _mask(lengths, x.shape[2])
            for block in self.blocks:
                x = block(x, mask)
            x = x.transpose(1, 2)  # (B, T', C)
        else:
            x, _ = self.lstm(x.transpose(1, 2))
        return F.log_softmax(self.characters(x).float(), dim=2), lengths


class ConvBlock(nn.Module):
    """Convolution over time, batch norm, ReLU, dropout; a shortcut where input and output have one shape."""

    def __init__(self, before: int, after: int, kernel: int, stride: int, dropout: float):
        super().__init__()
        self.stride = stride
        self.residual = before == after and stride == 1
        self.conv = nn.Conv1d(before, after, kernel, stride=stride, padding=kernel // 2, bias=False)
        self.norm = nn.BatchNorm1d(after)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return (B, after, T/stride); `mask` (B, 1, T/stride) keeps padded frames at zero.

        In evaluation no padded frame leaks into a real one. In training the batch norm's statistics count padded
        frames too, which are few because batches hold utterances of like length.
        """
        y = self.dropout(F.relu(self.norm(self.conv(x))))
        return (x + y if self.residual else y) * mask


def _mask(lengths: Tensor, frames: int) -> Tensor:
    """Ones where a frame is real: (B, 1, frames)."""
    return (torch.arange(frames, device=lengths.device) < lengths.unsqueeze(1)).unsqueeze(1)

"""The recogniser's convolution block with channels last and one pass for what follows its norm."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from labkit.fast.activation import MaskedRelu


class ChannelsLastBlock(nn.Module):
    """`labkit.models.speech.ConvBlock`, its dropout's probability rounded to a multiple of 1/256 on CPUs.

    It computes on images of height 1, because those may lie channels last, (B, T, C) in memory, as features do: oneDNN
    then needs no copies around its products.
    """

    def __init__(self, before: int, after: int, kernel: int, stride: int, dropout: float):
        super().__init__()
        self.stride = stride
        self.residual = before == after and stride == 1
        self.conv = nn.Conv2d(before, after, (1, kernel), stride=(1, stride), padding=(0, kernel // 2), bias=False).to(
            memory_format=torch.channels_last
        )
        self.norm = nn.BatchNorm2d(after)
        self.activation = MaskedRelu(dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return (B, after, T/stride) for (B, before, T); `mask` (B, 1, T/stride) keeps padded frames at zero."""
        y = self.activation(self.norm(self.conv(x.unsqueeze(2))), mask.unsqueeze(2)).squeeze(2)
        return x + y if self.residual else y

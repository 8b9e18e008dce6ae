"""The layers of a recogniser, faster than those of `labkit.models.speech`."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labkit import models

LEVELS = 256


class MaskedRelu(nn.Module):
    """`dropout(relu(x)) * mask`, with the probability rounded to a multiple of 1/256 on CPUs; training overwrites x.

    Fused, they take three passes over the values instead of seven. Dropout uses a random byte per value, eight per
    draw; on a CPU torch draws them one by one.
    """

    def __init__(self, dropout: float):
        super().__init__()
        self.p = dropout

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return x with zeros for negative and dropped values, and where the mask (bool, broadcast) is False."""
        dropped = round(self.p * LEVELS)
        if not self.training or x.device.type != "cpu" or dropped in (0, LEVELS):
            return F.dropout(F.relu(x), self.p, self.training) * mask
        return _MaskedRelu.apply(x, mask, dropped)


class _MaskedRelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Tensor, dropped: int) -> Tensor:
        ctx.scale = LEVELS / (LEVELS - dropped)
        ctx.mark_dirty(x)
        y = x.relu_().mul_(draw_kept(x, dropped)).mul_(mask.to(x.dtype)).mul_(ctx.scale)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        (y,) = ctx.saved_tensors  # positive exactly where the gradient passes
        return torch.ops.aten.threshold_backward(gradient, y, 0).mul_(ctx.scale), None, None


def draw_kept(x: Tensor, dropped: int) -> Tensor:
    """Draw on a CPU which values of x to keep: bool, in the layout of x; the share `dropped` / `LEVELS` is not kept."""
    # torch's generator draws 64 bits at a time
    draws = torch.empty(-(-x.numel() // 8), dtype=torch.int64).random_(-(2**63), None)
    layout = torch.empty_like(x, dtype=torch.uint8).stride()  # as x, which may have channels last
    return draws.view(torch.uint8)[: x.numel()].as_strided(x.shape, layout) >= dropped


class ChannelsLastBlock(nn.Module):
    """`labkit.models.ConvBlock`, with the dropout of `MaskedRelu`.

    It computes on images of height 1, because images can have channels last in memory, (B, T, C), as features do. Then
    oneDNN needs no copies around its products.
    """

    def __init__(self, before: int, after: int, kernel: int, stride: int, dropout: float):
        super().__init__()
        self.stride = stride
        self.residual = before == after and stride == 1
        self.conv = nn.Conv2d(before, after, (1, kernel), stride=(1, stride), padding=(0, kernel // 2), bias=False)
        self.conv.to(memory_format=torch.channels_last)  # ty: ignore[no-matching-overload]  # not in torch's stubs
        self.norm = nn.BatchNorm2d(after)
        self.activation = MaskedRelu(dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return (B, after, T/stride) for (B, before, T); `mask` (B, 1, T/stride) keeps padded frames at zero."""
        y = self.activation(self.norm(self.conv(x.unsqueeze(2))), mask.unsqueeze(2)).squeeze(2)
        return x + y if self.residual else y


class UnpackedBothWays(models.BothWays):
    """`labkit.models.BothWays` without packing, with the same weights under the same names.

    torch uses oneDNN for an LSTM, several times as fast, only if the input is a dense tensor. So each direction is a
    separate call; the backward one gets utterances that are reversed about their own last frame.
    """

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Return (B, T', 2 hidden) for (B, T', C), of which `lengths` (B,) are real."""
        place = torch.arange(x.shape[1], device=x.device)
        back = lengths.unsqueeze(1) - 1 - place
        turned = torch.where(back < 0, place, back).unsqueeze(2)  # (B, T', 1); padding stays in place
        there = self._one_way(x, self._flat_weights[:4])
        back = self._one_way(x.take_along_dim(turned, dim=1), self._flat_weights[4:])
        both = torch.cat([there, back.take_along_dim(turned, dim=1)], dim=2)
        return self.after(both.masked_fill((place >= lengths.unsqueeze(1)).unsqueeze(2), 0.0))

    def _one_way(self, x: Tensor, weights: list[Any]) -> Tensor:
        state = x.new_zeros(1, len(x), self.hidden_size)
        return torch.lstm(x, (state, state), weights, True, 1, 0.0, self.training, False, True)[0]

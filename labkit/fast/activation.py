"""ReLU, dropout and the mask of padded frames in one: three passes over the values instead of seven.

Dropout draws a byte for each value, eight in one draw: on a CPU torch draws them one by one.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LEVELS = 256


class MaskedRelu(nn.Module):
    """`dropout(relu(x)) * mask`, the probability rounded to a multiple of 1/256 on CPUs; training overwrites x."""

    def __init__(self, dropout: float):
        """Drop values with probability `dropout` while training."""
        super().__init__()
        self.p = dropout

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return x with its negative values, those dropped and those where the mask (bool, broadcast) is False at 0."""
        if not self.training or x.device.type != "cpu" or levels(self.p) in (0, LEVELS):
            return F.dropout(F.relu(x), self.p, self.training) * mask
        return _MaskedRelu.apply(x, mask, levels(self.p))


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
        (y,) = ctx.saved_tensors  # above zero exactly where the gradient passes
        return torch.ops.aten.threshold_backward(gradient, y, 0).mul_(ctx.scale), None, None


def levels(p: float) -> int:
    """A probability in `LEVELS`ths."""
    return round(p * LEVELS)


def draw_kept(x: Tensor, dropped: int) -> Tensor:
    """Draw for each value of x, on a CPU, whether it is kept: bool, laid out as x; `dropped` of `LEVELS` are not."""
    # torch's generator makes 64 bits at a time
    draws = torch.empty(-(-x.numel() // 8), dtype=torch.int64).random_(-(2**63), None)
    layout = torch.empty_like(x, dtype=torch.uint8).stride()  # that of x, which may lie channels last
    return draws.view(torch.uint8)[: x.numel()].as_strided(x.shape, layout) >= dropped

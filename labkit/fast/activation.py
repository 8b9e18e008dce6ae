"""ReLU, dropout and the mask of padded frames in one: three passes over the values instead of seven."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labkit.fast.dropout import LEVELS, draw_kept, levels


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

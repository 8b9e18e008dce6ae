"""Dropout that draws a byte for each value, eight in one draw: on a CPU torch draws them one by one."""

from __future__ import annotations

import torch
from torch import Tensor, nn

LEVELS = 256


class ByteDropout(nn.Dropout):
    """`nn.Dropout`, its probability rounded to a multiple of 1/256 on CPUs."""

    def forward(self, x: Tensor) -> Tensor:
        """Return x with values dropped and the others scaled up, while training."""
        if not self.training or x.device.type != "cpu":
            return super().forward(x)
        dropped = levels(self.p)
        if dropped in (0, LEVELS):
            return super().forward(x)
        return x * draw_kept(x, dropped) * (LEVELS / (LEVELS - dropped))


def levels(p: float) -> int:
    """A probability in `LEVELS`ths."""
    return round(p * LEVELS)


def draw_kept(x: Tensor, dropped: int) -> Tensor:
    """Draw for each value of x, on a CPU, whether it is kept: bool, laid out as x; `dropped` of `LEVELS` are not."""
    # torch's generator makes 64 bits at a time
    draws = torch.empty(-(-x.numel() // 8), dtype=torch.int64).random_(-(2**63), None)
    layout = torch.empty_like(x, dtype=torch.uint8).stride()  # that of x, which may lie channels last
    return draws.view(torch.uint8)[: x.numel()].as_strided(x.shape, layout) >= dropped

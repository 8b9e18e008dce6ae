"""Dropout that draws a byte for each value, eight in one draw: on a CPU torch draws them one by one."""

from __future__ import annotations

import torch
from torch import Tensor, nn

_LEVELS = 256


class ByteDropout(nn.Dropout):
    """`nn.Dropout`, its probability rounded to a multiple of 1/256 on CPUs."""

    def forward(self, x: Tensor) -> Tensor:
        """Return x with values dropped and the others scaled up, while training."""
        if not self.training or x.device.type != "cpu":
            return super().forward(x)
        dropped = round(self.p * _LEVELS)
        if dropped in (0, _LEVELS):
            return super().forward(x)
        # torch's generator makes 64 bits at a time
        draws = torch.empty(-(-x.numel() // 8), dtype=torch.int64).random_(-(2**63), None)
        layout = torch.empty_like(x, dtype=torch.uint8).stride()  # that of x, which may lie channels last
        kept = draws.view(torch.uint8)[: x.numel()].as_strided(x.shape, layout) >= dropped
        return x * kept * (_LEVELS / (_LEVELS - dropped))

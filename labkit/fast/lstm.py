"""The recogniser's LSTM in both directions, on utterances of different lengths without packing.

torch uses oneDNN for an LSTM, several times as fast, only if the input is a dense tensor. So each direction is a
separate call; the backward one gets utterances that are reversed about their own last frame.
"""

from __future__ import annotations

import torch
from torch import Tensor

from labkit import models


class UnpackedBothWays(models.BothWays):
    """`labkit.models.BothWays`, with the same weights under the same names."""

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Return (B, T', 2 hidden) for (B, T', C), of which `lengths` (B,) are real."""
        place = torch.arange(x.shape[1], device=x.device)
        back = lengths.unsqueeze(1) - 1 - place
        turned = torch.where(back < 0, place, back).unsqueeze(2)  # (B, T', 1); padding stays in place
        there = self._one_way(x, self._flat_weights[:4])
        back = self._one_way(x.take_along_dim(turned, dim=1), self._flat_weights[4:])
        both = torch.cat([there, back.take_along_dim(turned, dim=1)], dim=2)
        return self.after(both.masked_fill((place >= lengths.unsqueeze(1)).unsqueeze(2), 0.0))

    def _one_way(self, x: Tensor, weights: list[Tensor]) -> Tensor:
        state = x.new_zeros(1, len(x), self.hidden_size)
        return torch.lstm(x, (state, state), weights, True, 1, 0.0, self.training, False, True)[0]

"""The interaction of the features of a DLRM: the dot products of all pairs (Naumov et al., arXiv 1906.00091, §2.1).

Shapes: B batch, N features, D their width, P = N (N − 1) / 2 pairs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class PairwiseProducts(nn.Module):
    """`labkit.models.dlrm.PairwiseDots`, with a backward pass of one gather and one matrix product.

    Autograd would scatter the gradient into a zero matrix of all N² products, number by number, and use it twice.
    """

    def __init__(self, count: int):
        super().__init__()
        first, second = torch.tril_indices(count, count, offset=-1)
        pairs = torch.arange(len(first))
        # for each of the N² products the index of its pair's gradient; the diagonal has the zero after the last
        mirror = torch.full((count, count), len(first))
        mirror[first, second], mirror[second, first] = pairs, pairs
        self.register_buffer("pairs", first * count + second, persistent=False)
        self.register_buffer("mirror", mirror.flatten(), persistent=False)

    def forward(self, features: Tensor) -> Tensor:
        """Return (B, P) for (B, N, D)."""
        return _Products.apply(features, self.pairs, self.mirror)


class _Products(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, features: Tensor, pairs: Tensor, mirror: Tensor) -> Tensor:
        ctx.save_for_backward(features, mirror)
        return torch.bmm(features, features.transpose(1, 2)).flatten(1).gather(1, pairs.expand(len(features), -1))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        features, mirror = ctx.saved_tensors
        batch, count, _ = features.shape
        # gather, because index_select is five times slower in bf16
        symmetric = nn.functional.pad(gradient, (0, 1)).gather(1, mirror.expand(batch, -1))  # (B, N²)
        return torch.bmm(symmetric.view(batch, count, count), features), None, None

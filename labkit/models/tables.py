"""The embedding tables of a DLRM, all in one: a single lookup call instead of one a table.

Shapes: B batch, F tables, L pooling factor, D embedding dim, R rows of all tables together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class EmbeddingTables(nn.Module):
    """Sums of the rows that each bag names."""

    def __init__(self, num_rows: Sequence[int], embedding_dim: int, *, sparse: bool = True):
        """Make tables of `num_rows` rows each; `sparse` makes their gradient a sparse tensor."""
        super().__init__()
        self.sparse = sparse
        self.weight = nn.Parameter(torch.empty(sum(num_rows), embedding_dim))  # (R, D)
        starts = torch.tensor([0, *num_rows[:-1]]).cumsum(0)
        self.register_buffer("row_start", starts.to(torch.int32), persistent=False)  # (F,)
        self.keeps_bags = False
        """Whether the backward pass leaves the bags' gradient for `take_bags` instead of setting `weight.grad`."""
        self._bags: tuple[Tensor, Tensor] | None = None

    def forward(self, categorical: Tensor) -> Tensor:
        """Return the sums (B, F, D) for int32 (B, F, L), numbers of rows within each table."""
        batch, tables, pooling = categorical.shape
        rows = categorical + self.row_start.view(1, -1, 1)
        if self.keeps_bags and torch.is_grad_enabled():
            return _KeptBags.apply(self.weight, rows, self)
        bags = rows.view(batch * tables, pooling)
        return F.embedding_bag(bags, self.weight, mode="sum", sparse=self.sparse).view(batch, tables, -1)

    def take_bags(self) -> tuple[Tensor, Tensor]:
        """The latest backward pass's rows int32 (B, F, L), counted over all tables, and gradient float32 (B, F, D).

        A row's gradient is the sum over the bags that name it. A sparse `weight.grad` would hold that gradient once
        for each of the B·F·L lookups; here it is held once for each bag.
        """
        assert self._bags is not None, "no backward pass since the last time"
        bags, self._bags = self._bags, None
        return bags


class _KeptBags(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, rows: Tensor, tables: EmbeddingTables) -> Tensor:
        ctx.rows, ctx.tables = rows, tables
        batch, features, pooling = rows.shape
        return F.embedding_bag(rows.view(batch * features, pooling), weight, mode="sum").view(batch, features, -1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, None, None]:
        ctx.tables._bags = (ctx.rows, gradient.float().contiguous())
        return None, None, None

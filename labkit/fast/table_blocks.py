"""Steps the optimiser of embedding tables with torch alone, in place of the optimiser's own step.

Block by block, so that the gradient of a block is still in the cache when its rows are updated, and is never a sparse
tensor of all rows. Rows of a block are distinct, so what is read can be written back.

Shapes: U rows of a block, D embedding dim, R rows of all tables.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from labkit.fast.tables import EmbeddingTables, row_gradients
from labkit.models.rowwise_adagrad import RowwiseAdagrad

BLOCK_BYTES = 4 << 20
"""Of a block's gradient: enough rows for all cores, few enough for their caches."""

Rule = Callable[[Tensor, Tensor], None]
"""Updates rows int64 (U,) by their gradient (U, D)."""


class BlockUpdate:
    """Updates the rows that the latest batch looked up.

    State is kept in the optimiser, as its own step would leave it: a checkpoint of one way goes on in the other.
    """

    def __init__(self, tables: EmbeddingTables, optimiser: torch.optim.Optimizer):
        """Take over the steps of `optimiser`, which holds the weight of `tables`, which keep bags, and nothing else."""
        self._tables, self._optimiser = tables, optimiser
        self._rule = next(rule for kind, rule in _RULES.items() if isinstance(optimiser, kind))

    @torch.no_grad()
    def step(self) -> None:
        bags = self._tables.take_bags()
        weight = self._tables.weight
        update = self._rule(weight, self._optimiser.state[weight], self._optimiser.param_groups[0])
        row_bytes = weight.shape[1] * weight.element_size()
        for rows, gradient in row_gradients(*bags, most_rows=max(1, BLOCK_BYTES // row_bytes)):
            update(rows, gradient)


def begin_adam(weight: Tensor, state: dict[str, Any], group: dict[str, Any]) -> float:
    """Count a step of torch's SparseAdam in its state; return the size of the step."""
    if not state:  # torch's own step begins like this
        state["step"] = 0
        state["exp_avg"], state["exp_avg_sq"] = (torch.zeros_like(weight) for _ in range(2))
    state["step"] += 1
    beta1, beta2 = group["betas"]
    return group["lr"] * math.sqrt(1 - beta2 ** state["step"]) / (1 - beta1 ** state["step"])


def _sgd(weight: Tensor, state: dict[str, Any], group: dict[str, Any]) -> Rule:
    return lambda rows, gradient: _subtract(weight, rows, gradient, group["lr"])


def _adagrad(weight: Tensor, state: dict[str, Any], group: dict[str, Any]) -> Rule:
    state["step"] += 1

    def update(rows: Tensor, gradient: Tensor) -> None:
        squares = state["sum"].index_select(0, rows).addcmul_(gradient, gradient)  # (U, D)
        state["sum"].index_copy_(0, rows, squares)
        _subtract(weight, rows, gradient.div_(squares.sqrt_().add_(group["eps"])), group["lr"])

    return update


def _rowwise_adagrad(weight: Tensor, state: dict[str, Any], group: dict[str, Any]) -> Rule:
    def update(rows: Tensor, gradient: Tensor) -> None:
        squares = state["sum"].index_select(0, rows).add_(gradient.square().mean(1))  # (U,)
        state["sum"].index_copy_(0, rows, squares)
        _subtract(weight, rows, gradient.div_(squares.sqrt_().add_(group["eps"]).unsqueeze(1)), group["lr"])

    return update


def _sparse_adam(weight: Tensor, state: dict[str, Any], group: dict[str, Any]) -> Rule:
    step_size = begin_adam(weight, state, group)
    beta1, beta2 = group["betas"]

    def update(rows: Tensor, gradient: Tensor) -> None:
        mean = state["exp_avg"].index_select(0, rows).lerp_(gradient, 1 - beta1)  # (U, D)
        square = state["exp_avg_sq"].index_select(0, rows).mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        state["exp_avg"].index_copy_(0, rows, mean)
        state["exp_avg_sq"].index_copy_(0, rows, square)
        _subtract(weight, rows, mean.div_(square.sqrt_().add_(group["eps"])), step_size)

    return update


_RULES = {
    torch.optim.SGD: _sgd,
    torch.optim.Adagrad: _adagrad,
    RowwiseAdagrad: _rowwise_adagrad,
    torch.optim.SparseAdam: _sparse_adam,
}


def _subtract(weight: Tensor, rows: Tensor, change: Tensor, scale: float) -> None:
    # index_add_ would do the same on one core, row by row
    weight.index_copy_(0, rows, weight.index_select(0, rows).sub_(change, alpha=scale))

"""Adagrad with one number of state a row, as production DLRMs train their tables.

Source: EXACT_ROWWISE_ADAGRAD of FBGEMM and TorchRec; Mudigere et al., ISCA 2022 (arXiv 2104.05158), §4.1.4.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

EPS = 1e-10


class RowwiseAdagrad(torch.optim.Optimizer):
    """Scales the step of each row of a table by the root of the mean squares of its gradients, summed over steps."""

    def __init__(self, params: Iterable[Tensor], lr: float):
        super().__init__(params, {"lr": lr, "eps": EPS})
        for group in self.param_groups:
            for table in group["params"]:  # (R, D)
                self.state[table]["sum"] = torch.zeros(len(table), device=table.device)  # (R,)

    @torch.no_grad()
    def step(self) -> None:
        """Update the rows that have a gradient, sparse or not."""
        for group in self.param_groups:
            for table in group["params"]:
                if table.grad is None:
                    continue
                gradient = table.grad.to_sparse(1) if not table.grad.is_sparse else table.grad.coalesce()
                rows, values = gradient.indices()[0], gradient.values()  # (U,), (U, D)
                squares = self.state[table]["sum"]
                squares.index_add_(0, rows, values.square().mean(1))
                scale = group["lr"] / (squares[rows].sqrt() + group["eps"])
                table.index_add_(0, rows, values * scale.unsqueeze(1), alpha=-1)

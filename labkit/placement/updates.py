"""The optimisers' update of rows that travel with their state: one function, whatever tier they come from.

Shapes: U rows of a batch, D embedding dim, W numbers of a row: D weights, then the optimiser's state.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

BETA1, BETA2, ADAM_EPS, ADAGRAD_EPS = 0.9, 0.999, 1e-8, 1e-10
"""Defaults of torch.optim's SparseAdam and Adagrad, and of RowwiseAdagrad"""


@dataclass(frozen=True)
class Update:
    """One step of an optimiser of tables."""

    optimiser: str
    """sgd, adagrad, rowwise-adagrad or adam"""
    lr: float
    step: int
    """From 1"""


@torch.no_grad()
def update_rows(rows: Tensor, gradient: Tensor, update: Update) -> Tensor:
    """Step float32 rows (U, W), in place, by their gradient (U, D), as the sparse optimiser of that name does."""
    dim = gradient.shape[1]
    weight, state = rows[:, :dim], rows[:, dim:]  # (U, D), (U, W − D)
    if update.optimiser == "sgd":
        weight.sub_(gradient, alpha=update.lr)
    elif update.optimiser == "adagrad":
        state.add_(gradient * gradient)
        weight.sub_(gradient / (state.sqrt() + ADAGRAD_EPS), alpha=update.lr)
    elif update.optimiser == "rowwise-adagrad":
        state.add_(gradient.square().mean(1, keepdim=True))
        weight.sub_(gradient * (update.lr / (state.sqrt() + ADAGRAD_EPS)))
    else:
        first, second = state[:, :dim], state[:, dim:]
        first.add_((gradient - first) * (1 - BETA1))
        second.add_((gradient * gradient - second) * (1 - BETA2))
        step_size = update.lr * math.sqrt(1 - BETA2**update.step) / (1 - BETA1**update.step)
        weight.sub_(first / (second.sqrt() + ADAM_EPS), alpha=step_size)
    return rows

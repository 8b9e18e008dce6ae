"""The update of embedding tables by kernels that numba compiles, one for each optimiser. Importing this needs numba.

Each does what its torch optimiser does with the sparse gradient of the same batch, but reads the gradient of a bag
where it lies instead of copying it for every row the bag names. Tables are shared out among the threads; no two threads
touch one row.

Shapes: B batch, F tables, L pooling factor, D embedding dim, R rows of all tables, U most distinct rows of a table in a
batch, W threads.
    weight    float32 (R, D)
    rows      int32 (B, F, L), counted over all tables
    gradient  float32 (B, F, D), of each bag
    slots     int32 (R,), all −1 before and after
    touched   int32 (W, U), sums float32 (W, U, D): room to work in
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
import torch
from numba import njit, prange
from torch import Tensor

from labkit.fast.tables import EmbeddingTables
from labkit.models.dlrm import RowwiseAdagrad


class CompiledTables:
    """Steps an optimiser of embedding tables, without the tables' gradient ever being a sparse tensor.

    State is kept in the optimiser, as its own step would leave it: a checkpoint of one way goes on in the other.
    """

    def __init__(self, tables: EmbeddingTables, optimiser: torch.optim.Optimizer, *, is_trial: bool = False):
        """Take over the steps of `optimiser`, which holds the weight of `tables` and nothing else, on a CPU."""
        torch.sparse.check_sparse_tensor_invariants.disable()  # as by default, but Adagrad would warn of it
        tables.keeps_bags = True
        self._tables, self._optimiser = tables, optimiser
        self.param_groups = optimiser.param_groups
        self._kernel = next(kernel for kind, kernel in _KERNELS.items() if isinstance(optimiser, kind))
        self._threads, self._lookups = 0, 0  # that there is room for
        if not is_trial:  # compile the kernel, or load what was compiled before, half a second that no step is to take
            small = EmbeddingTables([1], tables.weight.shape[1])
            trial = type(optimiser)([torch.nn.init.zeros_(small.weight)], lr=optimiser.param_groups[0]["lr"])
            trial = CompiledTables(small, trial, is_trial=True)
            small(torch.zeros(1, 1, 1, dtype=torch.int32)).sum().backward()
            trial.step()

    def step(self) -> None:
        """Update the rows that the latest batch looked up."""
        rows, gradient = self._tables.take_bags()
        weight, torch_threads = self._tables.weight, torch.get_num_threads()
        threads = min(torch_threads, numba.config.NUMBA_NUM_THREADS, rows.shape[1])  # of a table each
        numba.set_num_threads(threads)
        self._make_room(threads, rows.shape[0] * rows.shape[2])
        state, group = self._optimiser.state[weight], self._optimiser.param_groups[0]
        self._kernel(_array(weight), state, group, (_array(rows), _array(gradient), *self._room))
        if torch.get_num_threads() != torch_threads:  # numba started its threads, in the OpenMP that torch uses, too
            torch.set_num_threads(torch_threads)

    def zero_grad(self) -> None:
        """There is no gradient to forget."""

    def state_dict(self) -> dict[str, Any]:
        return self._optimiser.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._optimiser.load_state_dict(state)
        self.param_groups = self._optimiser.param_groups

    def _make_room(self, threads: int, lookups: int) -> None:
        """Make what kernels work in, once for a size of batch: slots, touched and sums."""
        if threads != self._threads or lookups > self._lookups:
            total, dim = self._tables.weight.shape
            distinct = min(max(map(len, self._tables.table_weights())), lookups)
            self._threads, self._lookups = threads, lookups
            self._room = (
                np.full(total, -1, np.int32),
                np.empty((threads, distinct), np.int32),
                np.empty((threads, distinct, dim), np.float32),
            )


def _array(tensor: Tensor) -> np.ndarray:
    """The tensor's own memory."""
    return tensor.detach().numpy()


def _sgd(weight, state, group, work):
    sgd(weight, *work, np.float32(group["lr"]))


def _adagrad(weight, state, group, work):
    state["step"] += 1
    adagrad(weight, _array(state["sum"]), *work, np.float32(group["lr"]), np.float32(group["eps"]))


def _rowwise_adagrad(weight, state, group, work):
    rowwise_adagrad(weight, _array(state["sum"]), *work, np.float32(group["lr"]), np.float32(group["eps"]))


def _sparse_adam(weight, state, group, work):
    if not state:  # torch's own step begins like this
        state["step"] = 0
        state["exp_avg"], state["exp_avg_sq"] = (torch.zeros(weight.shape) for _ in range(2))
    state["step"] += 1
    beta1, beta2 = group["betas"]
    step_size = group["lr"] * math.sqrt(1 - beta2 ** state["step"]) / (1 - beta1 ** state["step"])
    numbers = (np.float32(number) for number in (step_size, beta1, beta2, group["eps"]))
    sparse_adam(weight, _array(state["exp_avg"]), _array(state["exp_avg_sq"]), *work, *numbers)


_KERNELS = {
    torch.optim.SGD: _sgd,
    torch.optim.Adagrad: _adagrad,
    RowwiseAdagrad: _rowwise_adagrad,
    torch.optim.SparseAdam: _sparse_adam,
}

# Sums may be regrouped and products fused; unlike all of fastmath this keeps NaN a NaN, which ends a diverged run.
_OPTIONS = {"cache": True, "nogil": True, "error_model": "numpy", "fastmath": {"contract", "reassoc"}}


@njit(parallel=True, **_OPTIONS)
def sgd(weight, rows, gradient, slots, touched, sums, lr):
    """Subtract lr times the gradient; the sum over equal rows makes itself."""
    batch, tables, pooling = rows.shape
    workers = len(touched)
    for worker in prange(workers):
        for table in range(worker, tables, workers):
            for sample in range(batch):
                for place in range(pooling):
                    row = rows[sample, table, place]
                    for k in range(weight.shape[1]):
                        weight[row, k] -= lr * gradient[sample, table, k]


@njit(parallel=True, **_OPTIONS)
def adagrad(weight, squares, rows, gradient, slots, touched, sums, lr, eps):
    """Adagrad; `squares` (R, D) is its state."""
    workers = len(touched)
    for worker in prange(workers):
        for table in range(worker, rows.shape[1], workers):
            count = _sum_by_row(rows, gradient, table, slots, touched[worker], sums[worker])
            for unique in range(count):
                row = touched[worker, unique]
                for k in range(weight.shape[1]):
                    each = sums[worker, unique, k]
                    squares[row, k] += each * each
                    weight[row, k] -= lr * each / (np.sqrt(squares[row, k]) + eps)


@njit(parallel=True, **_OPTIONS)
def rowwise_adagrad(weight, squares, rows, gradient, slots, touched, sums, lr, eps):
    """Rowwise Adagrad; `squares` (R,) is its state."""
    workers, dim = len(touched), weight.shape[1]
    for worker in prange(workers):
        for table in range(worker, rows.shape[1], workers):
            count = _sum_by_row(rows, gradient, table, slots, touched[worker], sums[worker])
            for unique in range(count):
                row = touched[worker, unique]
                total = np.float32(0)
                for k in range(dim):
                    total += sums[worker, unique, k] * sums[worker, unique, k]
                squares[row] += total / np.float32(dim)
                scale = lr / (np.sqrt(squares[row]) + eps)
                for k in range(dim):
                    weight[row, k] -= scale * sums[worker, unique, k]


@njit(parallel=True, **_OPTIONS)
def sparse_adam(weight, mean, square, rows, gradient, slots, touched, sums, step_size, beta1, beta2, eps):
    """Adam for the rows of the batch only; `mean` and `square` (R, D) are its state."""
    workers, one = len(touched), np.float32(1)
    for worker in prange(workers):
        for table in range(worker, rows.shape[1], workers):
            count = _sum_by_row(rows, gradient, table, slots, touched[worker], sums[worker])
            for unique in range(count):
                row = touched[worker, unique]
                for k in range(weight.shape[1]):
                    each = sums[worker, unique, k]
                    mean[row, k] += (one - beta1) * (each - mean[row, k])
                    square[row, k] += (one - beta2) * (each * each - square[row, k])
                    weight[row, k] -= step_size * mean[row, k] / (np.sqrt(square[row, k]) + eps)


@njit(**_OPTIONS)
def _sum_by_row(rows, gradient, table, slots, touched, sums):
    """Sum the gradient of each row of one table; return how many rows there are."""
    count, dim = 0, sums.shape[1]
    for sample in range(rows.shape[0]):
        for place in range(rows.shape[2]):
            row = rows[sample, table, place]
            slot = slots[row]
            if slot < 0:
                slot = count
                slots[row], touched[slot] = slot, row
                count += 1
                for k in range(dim):
                    sums[slot, k] = gradient[sample, table, k]
            else:
                for k in range(dim):
                    sums[slot, k] += gradient[sample, table, k]
    for unique in range(count):
        slots[touched[unique]] = -1
    return count

"""The update of embedding tables by a kernel that numba compiles. Importing this module needs numba.

It equals the optimiser's step with the sparse gradient of the same batch, but reads the gradient of each bag in place,
without copying it for each of the bag's rows. Each thread has its own tables, so no two threads write the same row. The
kernel is registered as an operator of torch, so that profiles and performance models see it.

Shapes: B batch, F tables, L pooling factor, D embedding dim, R rows of all tables, U most distinct rows of a table in a
batch, W threads.
    weight    float32 (R, D)
    rows      int32 (B, F, L), numbered over all tables
    gradient  float32 (B, F, D), of each bag
    state     up to two float32 (R, D), or (R, 1) for rowwise Adagrad
    slots     int32 (R,), all −1 before and after
    touched   int32 (W, U), sums float32 (W, U, D): scratch memory
"""

import math
from typing import Any

import numba
import numpy as np
import torch
import torch.distributed as dist
from numba import njit, prange
from torch import Tensor

from labkit import models
from labkit.fast.dlrm import EmbeddingTables, RowExchange

KINDS = (torch.optim.SGD, torch.optim.Adagrad, models.RowwiseAdagrad, torch.optim.SparseAdam)
SGD, ADAGRAD, ROWWISE, ADAM = range(len(KINDS))


class CompiledTables:
    """Steps an optimiser of embedding tables without making their gradient a sparse tensor.

    The state is kept in the optimiser, in the same form as after its own step, so checkpoints fit both.
    """

    def __init__(self, tables: EmbeddingTables, optimiser: torch.optim.Optimizer):
        """Replace the steps of `optimiser`, whose only parameter is the weight of `tables`, on a CPU."""
        torch.sparse.check_sparse_tensor_invariants.disable()  # as by default; set, or Adagrad warns
        tables.keeps_bags = True
        self._tables, self._optimiser = tables, optimiser
        self.param_groups = optimiser.param_groups
        self._kind = next(number for number, kind in enumerate(KINDS) if isinstance(optimiser, kind))
        self._threads, self._lookups = 0, 0  # that scratch memory is allocated for
        self._exchange = RowExchange()
        # compile or load the kernel now, with one row: half a second that should not be part of a step
        rows, gradient = torch.zeros(1, 1, 1, dtype=torch.int32), torch.zeros(1, 1, tables.weight.shape[1])
        room = rows[0, 0] - 1, rows[0].clone(), gradient.clone()
        update_tables(gradient[0].clone(), [], rows, gradient, *room, SGD, 0.0, 0.0, 0.0, 0.0)

    def step(self) -> None:
        """Update the rows that the latest batch looked up."""
        rows, gradient = self._tables.take_bags()
        weight = self._tables.weight
        if dist.is_available() and dist.is_initialized() and (ranks := dist.get_world_size()) > 1:
            rows, gradient = self._of_all(rows.flatten(0, 1)[:, None], gradient.flatten(0, 1)[:, None], ranks)
        threads = min(torch.get_num_threads(), numba.config.NUMBA_NUM_THREADS, rows.shape[1])  # ty: ignore[missing-attribute]
        self._make_room(threads, rows.shape[0] * rows.shape[2])
        state, step_size, numbers = self._begin_step(weight)
        update_tables(weight.detach(), state, rows, gradient, *self._room, self._kind, step_size, *numbers)

    def _of_all(self, rows: Tensor, gradient: Tensor, ranks: int) -> tuple[Tensor, Tensor]:
        """Bags of all ranks as those of one table, with the gradient of the mean of their losses.

        Each rank sums by row first, so that it sends a popular row once: `rows` is (B F, 1, L), `gradient` (B F, 1, D).
        """
        self._make_room(1, rows.numel())
        slots, touched, sums = self._room
        arrays = (each.numpy() for each in (rows, gradient))
        count = _sum_by_row(*arrays, 0, slots.numpy(), touched[0].numpy(), sums[0].numpy())
        rows, gradient = self._exchange.gather(touched[0, :count], sums[0, :count] / ranks)
        return rows[:, None, None], gradient[:, None]

    def _begin_step(self, weight: Tensor) -> tuple[list[Tensor], float, tuple[float, float, float]]:
        """Count a step in the optimiser's state; return its tensors, the step size, and (beta1, beta2, eps)."""
        state, group = self._optimiser.state[weight], self._optimiser.param_groups[0]
        lr, eps = group["lr"], group.get("eps", 0.0)
        if self._kind != ADAM:
            if self._kind == ADAGRAD:
                state["step"] += 1
            return [state["sum"]] if self._kind != SGD else [], lr, (0.0, 0.0, eps)
        if not state:  # as in torch's own step
            state["step"] = 0
            state["exp_avg"], state["exp_avg_sq"] = (torch.zeros_like(weight) for _ in range(2))
        state["step"] += 1
        beta1, beta2 = group["betas"]
        step_size = lr * math.sqrt(1 - beta2 ** state["step"]) / (1 - beta1 ** state["step"])
        return [state["exp_avg"], state["exp_avg_sq"]], step_size, (beta1, beta2, eps)

    def zero_grad(self) -> None:
        """Nothing to do: there is no gradient."""

    def state_dict(self) -> dict[str, Any]:
        return self._optimiser.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._optimiser.load_state_dict(state)
        self.param_groups = self._optimiser.param_groups

    def _make_room(self, threads: int, lookups: int) -> None:
        """Allocate scratch memory (slots, touched and sums) if the batch is larger than before."""
        if threads != self._threads or lookups > self._lookups:
            total, dim = self._tables.weight.shape
            distinct = min(total, lookups)
            self._threads, self._lookups = threads, lookups
            self._room = (
                torch.full((total,), -1, dtype=torch.int32),
                torch.empty(threads, distinct, dtype=torch.int32),
                torch.empty(threads, distinct, dim),
            )


# Sums may be regrouped and products fused. Full fastmath could lose a NaN, by which a diverged run is recognised.
_OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy", "fastmath": {"contract", "reassoc"}}


@njit(parallel=True, **_OPTIONS)
def update(kind, weight, first, second, rows, gradient, slots, touched, sums, lr, beta1, beta2, eps):
    """Step the rows of a batch; `first` and `second` are the state, (R, D), or (R, 1) for rowwise Adagrad."""
    workers, dim, one = len(touched), weight.shape[1], np.float32(1)
    for worker in prange(workers):
        for table in range(worker, rows.shape[1], workers):
            if kind == SGD:  # adding one by one sums over equal rows
                for sample in range(rows.shape[0]):
                    for place in range(rows.shape[2]):
                        row = rows[sample, table, place]
                        for k in range(dim):
                            weight[row, k] -= lr * gradient[sample, table, k]
                continue
            count = _sum_by_row(rows, gradient, table, slots, touched[worker], sums[worker])
            for unique in range(count):
                row, change = touched[worker, unique], sums[worker, unique]
                if kind == ADAGRAD:
                    for k in range(dim):
                        first[row, k] += change[k] * change[k]
                        weight[row, k] -= lr * change[k] / (np.sqrt(first[row, k]) + eps)
                elif kind == ROWWISE:
                    total = np.float32(0)
                    for k in range(dim):
                        total += change[k] * change[k]
                    first[row, 0] += total / np.float32(dim)
                    scale = lr / (np.sqrt(first[row, 0]) + eps)
                    for k in range(dim):
                        weight[row, k] -= scale * change[k]
                else:
                    for k in range(dim):
                        first[row, k] += (one - beta1) * (change[k] - first[row, k])
                        second[row, k] += (one - beta2) * (change[k] * change[k] - second[row, k])
                        weight[row, k] -= lr * first[row, k] / (np.sqrt(second[row, k]) + eps)


@njit(**_OPTIONS)
def _sum_by_row(rows, gradient, table, slots, touched, sums):
    """Sum the gradient of each row of one table; return the number of rows."""
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


def _update(weight, state, rows, gradient, slots, touched, sums, kind, *numbers):
    torch_threads = torch.get_num_threads()
    numba.set_num_threads(len(touched))
    first, second = (each.view(len(weight), -1).numpy() for each in (*state, weight, weight)[:2])
    arrays = (each.numpy() for each in (rows, gradient, slots, touched, sums))
    update(kind, weight.numpy(), first, second, *arrays, *map(np.float32, numbers))
    # numba shares OpenMP with torch, and starting its threads changes torch's setting
    if torch.get_num_threads() != torch_threads:
        torch.set_num_threads(torch_threads)


_LIBRARY = torch.library.Library("labkit", "DEF")
_LIBRARY.define(
    "update_tables(Tensor(a!) weight, Tensor(b!)[] state, Tensor rows, Tensor gradient, Tensor(c!) slots, "
    "Tensor(d!) touched, Tensor(e!) sums, int kind, float lr, float beta1, float beta2, float eps) -> ()"
)
_LIBRARY.impl("update_tables", _update, "CPU")
update_tables = torch.ops.labkit.update_tables.default

"""The compiled updates of embedding tables, one for each optimiser. Importing this needs numba.

Each does what its torch optimiser does with the sparse gradient of the same batch (`Optimisers` has both, and a test
compares them), but reads the gradient of a bag where it lies instead of copying it for every row the bag names. Tables
are shared out among the threads; no two threads touch one row.

Shapes: B batch, F tables, L pooling factor, D embedding dim, R rows of all tables, U most distinct rows of a table in a
batch, W threads.
    weight    float32 (R, D)
    rows      int32 (B, F, L), counted over all tables
    gradient  float32 (B, F, D), of each bag
    slots     int32 (R,), all −1 before and after
    touched   int32 (W, U), sums float32 (W, U, D): room to work in
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

# Sums may be regrouped and products fused; unlike all of fastmath this keeps NaN a NaN, which ends a diverged run.
_OPTIONS = {"cache": True, "nogil": True, "error_model": "numpy", "fastmath": {"contract", "reassoc"}}


@njit(parallel=True, **_OPTIONS)
def sgd(weight, rows, gradient, workers, lr):
    """Subtract lr times the gradient; the sum over equal rows makes itself."""
    batch, tables, pooling = rows.shape
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

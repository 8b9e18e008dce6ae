"""Steps the optimiser of embedding tables with the compiled kernels, in place of the optimiser's own step."""

from __future__ import annotations

import itertools

import numba
import numpy as np
import torch
from torch import Tensor

from labkit.fast import table_kernels
from labkit.fast.table_blocks import begin_adam
from labkit.fast.tables import EmbeddingTables
from labkit.models.rowwise_adagrad import RowwiseAdagrad


class CompiledUpdate:
    """Updates the rows that the latest batch looked up.

    State is kept in the optimiser, as its own step would leave it: a checkpoint of one way goes on in the other.
    """

    def __init__(self, tables: EmbeddingTables, optimiser: torch.optim.Optimizer):
        """Take over the steps of `optimiser`, which holds the weight of `tables`, which keep bags, and nothing else."""
        self._tables, self._optimiser = tables, optimiser
        self._kernel = next(kernel for kind, kernel in _KERNELS.items() if isinstance(optimiser, kind))
        self._threads, self._lookups = 0, 0  # that there is room for

    def step(self) -> None:
        rows, gradient = self._tables.take_bags()
        weight = self._tables.weight
        torch_threads = torch.get_num_threads()
        threads = min(torch_threads, numba.config.NUMBA_NUM_THREADS, rows.shape[1])  # of a table each
        numba.set_num_threads(threads)
        self._kernel(
            _array(weight), self._optimiser.state[weight], self._optimiser.param_groups[0], _array(rows),
            _array(gradient), lambda: self._arrays(rows, threads),
        )  # fmt: skip
        if torch.get_num_threads() != torch_threads:  # numba started its threads, in the OpenMP that torch uses, too
            torch.set_num_threads(torch_threads)

    def load_kernel(self) -> None:
        """Compile the kernel, or load what was compiled before: half a second that no first step is to take."""
        tables = EmbeddingTables([1], self._tables.weight.shape[1])
        tables.keeps_bags = True
        torch.nn.init.zeros_(tables.weight)
        kind, group = type(self._optimiser), self._optimiser.param_groups[0]
        once = CompiledUpdate(tables, kind([tables.weight], lr=group["lr"]))
        tables(torch.zeros(1, 1, 1, dtype=torch.int32)).sum().backward()
        once.step()

    def _arrays(self, rows: Tensor, threads: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What most kernels work in, made once for a size of batch: slots, touched and sums."""
        lookups = rows.shape[0] * rows.shape[2]
        if threads != self._threads or lookups > self._lookups:
            total, dim = self._tables.weight.shape
            starts = [*self._tables.row_start.tolist(), total]
            distinct = min(max(stop - start for start, stop in itertools.pairwise(starts)), lookups)
            self._threads, self._lookups = threads, lookups
            self._room = (
                np.full(total, -1, np.int32),
                np.empty((threads, distinct), np.int32),
                np.empty((threads, distinct, dim), np.float32),
            )
        return self._room


def _sgd(weight, state, group, rows, gradient, room):
    table_kernels.sgd(weight, rows, gradient, numba.get_num_threads(), np.float32(group["lr"]))


def _adagrad(weight, state, group, rows, gradient, room):
    state["step"] += 1
    lr, eps = np.float32(group["lr"]), np.float32(group["eps"])
    table_kernels.adagrad(weight, _array(state["sum"]), rows, gradient, *room(), lr, eps)


def _rowwise_adagrad(weight, state, group, rows, gradient, room):
    lr, eps = np.float32(group["lr"]), np.float32(group["eps"])
    table_kernels.rowwise_adagrad(weight, _array(state["sum"]), rows, gradient, *room(), lr, eps)


def _sparse_adam(weight, state, group, rows, gradient, room):
    step_size = begin_adam(torch.from_numpy(weight), state, group)
    numbers = (np.float32(number) for number in (step_size, *group["betas"], group["eps"]))
    mean, square = _array(state["exp_avg"]), _array(state["exp_avg_sq"])
    table_kernels.sparse_adam(weight, mean, square, rows, gradient, *room(), *numbers)


_KERNELS = {
    torch.optim.SGD: _sgd,
    torch.optim.Adagrad: _adagrad,
    RowwiseAdagrad: _rowwise_adagrad,
    torch.optim.SparseAdam: _sparse_adam,
}


def _array(tensor: Tensor) -> np.ndarray:
    """The tensor's own memory."""
    return tensor.detach().numpy()

"""The optimisers of a DLRM with one table of all rows: dense weights fused, tables by the rows that a batch touched.

Each does what torch's own of that name does (`tests/fast`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from labkit.compiled import why_not_compiled
from labkit.fast.quick_optimiser import without_compiler
from labkit.fast.table_blocks import BlockUpdate
from labkit.fast.tables import EmbeddingTables
from labkit.models.rowwise_adagrad import RowwiseAdagrad

KINDS = {
    name: (without_compiler(dense), without_compiler(sparse))
    for name, (dense, sparse) in {
        "sgd": (torch.optim.SGD, torch.optim.SGD),
        "adagrad": (torch.optim.Adagrad, torch.optim.Adagrad),
        "rowwise-adagrad": (torch.optim.Adagrad, RowwiseAdagrad),
        "adam": (torch.optim.Adam, torch.optim.SparseAdam),
    }.items()
}
"""For dense and for sparse gradients."""


def fast_optimisers(name: str, dense: list[Tensor], tables: EmbeddingTables, lr: float) -> list[Any]:
    """One optimiser for the dense weights and one for the tables, stepped one after the other."""
    dense_kind, table_kind = KINDS[name]
    on_cpu = tables.weight.device.type == "cpu"
    # one pass over each parameter; torch 2.13 has Adagrad's for CPUs only
    fused = on_cpu or dense_kind.__name__ != "Adagrad"
    of_tables = table_kind([tables.weight], lr=lr)
    if not on_cpu:  # a GPU would wait for the CPU at every block of rows
        return [dense_kind(dense, lr=lr, fused=fused), of_tables]
    return [dense_kind(dense, lr=lr, fused=fused), TableOptimiser(tables, of_tables, compiled=tables_compile())]


def tables_compile() -> bool:
    """Whether tables are updated by kernels that numba compiles."""
    return why_not_compiled() is None


class TableOptimiser:
    """Steps an optimiser of embedding tables without its gradient ever being a sparse tensor.

    State is kept in the optimiser, as its own step would leave it: a checkpoint of one way goes on in the other.
    """

    def __init__(self, tables: EmbeddingTables, optimiser: torch.optim.Optimizer, *, compiled: bool):
        """Take over the steps of `optimiser`, which holds the weight of `tables` and nothing else, on a CPU."""
        torch.sparse.check_sparse_tensor_invariants.disable()  # as by default, but Adagrad would warn of it
        tables.keeps_bags = True
        if compiled:
            from labkit.fast.table_compiled import CompiledUpdate  # which needs numba

            self._update: Any = CompiledUpdate(tables, optimiser)
            self._update.load_kernel()
        else:
            self._update = BlockUpdate(tables, optimiser)
        self._optimiser = optimiser
        self.param_groups = optimiser.param_groups

    def step(self) -> None:
        self._update.step()

    def zero_grad(self) -> None:
        """There is no gradient to forget."""

    def state_dict(self) -> dict[str, Any]:
        return self._optimiser.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._optimiser.load_state_dict(state)
        self.param_groups = self._optimiser.param_groups

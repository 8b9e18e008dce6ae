"""The optimisers of a DLRM with one table of all rows: dense weights fused, tables by the rows that a batch touched.

Each does what torch's own of that name does (`tests/fast`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from labkit.compiled import why_not_compiled
from labkit.errors import UserError
from labkit.fast.quick_optimiser import quick_optimiser, without_compiler
from labkit.fast.table_blocks import BlockUpdate
from labkit.fast.tables import EmbeddingTables


def fast_optimisers(
    kinds: tuple[type[Optimizer], type[Optimizer]], dense: list[Tensor], tables: EmbeddingTables, lr: float
) -> list[Any]:
    """One optimiser for the dense weights and one for the tables, of these kinds, stepped one after the other."""
    if not isinstance(tables, EmbeddingTables):
        raise UserError(
            f"kernels fast updates the one table of labkit.fast.tables, and this model has a {type(tables).__name__}: "
            "give it EmbeddingTables, step it with optimisers of torch, or train with --kernels plain."
        )
    of_tables = without_compiler(kinds[1])([tables.weight], lr=lr)
    if tables.weight.device.type == "cpu":  # a GPU would wait for the CPU at every block of rows
        of_tables = TableOptimiser(tables, of_tables, compiled=tables_compile())
    return [quick_optimiser(kinds[0], dense, lr), of_tables]


def tables_compile() -> bool:
    """Whether tables are updated by kernels that numba compiles."""
    return why_not_compiled() is None


class TableOptimiser:
    """Steps an optimiser of embedding tables without its gradient ever being a sparse tensor.

    State is kept in the optimiser, as its own step would leave it: a checkpoint of one way goes on in the other.
    """

    def __init__(self, tables: EmbeddingTables, optimiser: Optimizer, *, compiled: bool):
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

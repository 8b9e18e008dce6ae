"""What the update of embedding tables holds while it works, by formula: how many rows it meets depends on the data.

Written down from the code of `table_blocks`, `table_compiled` and `models.tables.row_gradients`, line by line.

Shapes: B batch, F tables, L pooling factor, D embedding dim, R rows of all tables, U distinct rows of a batch.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from labkit.collocation.memory.storage_log import room
from labkit.fast.tables import EmbeddingTables
from labkit.fast.table_blocks import BLOCK_BYTES

STATE_COPIES = {"sgd": 0, "adagrad": 1, "rowwise-adagrad": 0, "adam": 2}
"""Tensors as large as the tables that the optimiser keeps; rowwise Adagrad keeps a number a row instead."""
INT, LONG, FLOAT = 4, 8, 4
RADIX_SORT_AT = 32_768
"""So many integers or more are sorted by their digits, in a second copy of numbers and places (aten, SortingKernel)."""


def distinct_rows(num_rows: Sequence[int], lookups: int) -> int:
    """Distinct rows that `lookups` draws from each table name, at most on average: were all rows equally likely.

    >>> distinct_rows([10], 1), distinct_rows([10], 1000), distinct_rows([1_000_000], 10)
    (1, 10, 10)
    """
    return round(sum(rows * (1 - (1 - 1 / rows) ** lookups) for rows in num_rows))


class PredictedUpdate:
    """Stands in for `BlockUpdate`, `CompiledUpdate` or, on a GPU, a sparse gradient: takes room, computes nothing."""

    def __init__(self, tables: EmbeddingTables, num_rows: Sequence[int], optimiser: str, way: str, threads: int):
        """`way` is "plain", "compiled" (by `threads` threads) or "sparse", the gradient as a tensor of its own."""
        self._tables, self._num_rows, self._optimiser = tables, num_rows, optimiser
        self._way, self._threads = way, threads
        self.state: list[Tensor] = []
        self._kept: list[Tensor] = []

    def step(self) -> None:
        rows, gradient = self._tables.take_bags()  # (B, F, L), (B, F, D)
        if not self.state:
            self.state = room(*self._state_sizes())
        if self._way == "compiled":
            if not self._kept:
                self._kept = room(*self._compiled_sizes(rows))
            return
        distinct = distinct_rows(self._num_rows, rows.shape[0] * rows.shape[2])
        if self._way == "sparse":
            self._sparse(rows.numel(), distinct, gradient)
        else:
            self._blocks(rows.numel(), distinct, gradient)

    def _state_sizes(self) -> list[int]:
        rows, dim = self._tables.weight.shape
        if self._optimiser == "rowwise-adagrad":
            return [FLOAT * rows]
        return STATE_COPIES[self._optimiser] * [FLOAT * rows * dim]

    def _compiled_sizes(self, rows: Tensor) -> list[int]:
        """Of `table_compiled._Room`: slots, touched and sums; plain SGD needs none."""
        if self._optimiser == "sgd":
            return []
        total, dim = self._tables.weight.shape
        threads = min(self._threads, rows.shape[1])
        distinct = min(max(self._num_rows), rows.shape[0] * rows.shape[2])
        return [INT * total, INT * threads * distinct, FLOAT * threads * distinct * dim]

    def _sorted(self, lookups: int, distinct: int) -> list[Tensor]:
        """Sorted rows and their places; then what `unique_consecutive` makes, which keeps room for all lookups."""
        found = room(INT * lookups, LONG * lookups)
        if lookups >= RADIX_SORT_AT:
            room(INT * lookups + LONG * lookups)
        found += room(INT * lookups, LONG * lookups)  # distinct, counts
        found += room(LONG * lookups, LONG * distinct, LONG * distinct)  # bags, ends, starts
        return found

    def _blocks(self, lookups: int, distinct: int, gradient: Tensor) -> None:
        """`BlockUpdate.step`: one block's gradient, and a few as large while the rule is applied."""
        found = self._sorted(lookups, distinct)
        row_bytes = FLOAT * gradient.shape[2]
        most = max(1, BLOCK_BYTES // row_bytes)
        for first in range(0, distinct, most):
            rows = min(most, distinct - first)
            looked = lookups * rows // distinct
            lookup = room(LONG * looked, LONG * rows, LONG * rows)  # of embedding_bag: offset2bag, sizes, offsets
            block = room(LONG * rows, rows * row_bytes)
            del lookup
            rule = room(*_RULE_COPIES[self._optimiser] * [rows * row_bytes])
            del rule  # but not the block, which stays until the next one is there
        del found, block

    def _sparse(self, lookups: int, distinct: int, gradient: Tensor) -> None:
        """`_Lookup.backward` without bags: all distinct rows at once; then the optimiser's own sparse step."""
        size = FLOAT * distinct * gradient.shape[2]
        found = self._sorted(lookups, distinct)
        made = room(LONG * distinct, size)
        del found
        room(_SPARSE_COPIES[self._optimiser] * size)
        del made


_RULE_COPIES = {"sgd": 1, "adagrad": 2, "rowwise-adagrad": 2, "adam": 3}
"""Tensors as large as a block's gradient that a rule of `table_blocks` holds at once, beside it."""
_SPARSE_COPIES = {"sgd": 0, "adagrad": 3, "rowwise-adagrad": 2, "adam": 5}
"""The same for torch's sparse steps and `RowwiseAdagrad.step`, beside the values (torch 2.13, optim/_functional.py)."""

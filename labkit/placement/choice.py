"""The placement that a script's flags ask for, as its model takes it: see docs/placement.md."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch import nn

from labkit.fast import EmbeddingTables
from labkit.placement.cached import CachedStore
from labkit.placement.disk import DiskStore
from labkit.placement.flags import Placement, row_width
from labkit.placement.remote import RemoteStore
from labkit.placement.row_store import HostStore, RowStore
from labkit.placement.tables import PlacedTables


def placed_tables(
    args: argparse.Namespace, *, optimiser: str | None = None, device: str = "cpu"
) -> Callable[[Sequence[int], int], nn.Module]:
    """What `Dlrm(config, tables=...)` takes: tables where the flags of `placement_flags` want them.

    Args:
        args: of the script; of its own flags `optimiser` and `runs_dir` are used, if they are there.
        optimiser: of the tables: sgd, adagrad, rowwise-adagrad or adam.
        device: that computes, as torch names it.

    Raises:
        UserError: a flag makes no sense, or the tables have no room.
    """
    placement = Placement.from_args(args)
    if placement.kind == "device":
        return EmbeddingTables
    optimiser = optimiser or args.optimiser

    def build(num_rows: Sequence[int], embedding_dim: int) -> PlacedTables:
        size = sum(num_rows), embedding_dim, row_width(optimiser, embedding_dim)
        store: RowStore
        if placement.kind == "remote":
            store = RemoteStore(*size[:2], optimiser, staleness=placement.staleness, device=device)
        elif placement.kind == "cached":
            slots = placement.cached_rows(sum(num_rows))
            behind = _disk(placement, size, "cpu") if placement.uses_disk else HostStore(*size)
            store = CachedStore(behind, slots, placement.cache_policy, device)
        else:
            store = _disk(placement, size, device) if placement.uses_disk else HostStore(*size, device)
        return PlacedTables(num_rows, embedding_dim, store, optimiser)

    return build


def ahead(tables: nn.Module, loader: Iterable[Any], categorical: int = 1) -> Iterable[Any]:
    """`PlacedTables.ahead`, and the loader itself for tables on the device."""
    return tables.ahead(loader, categorical) if isinstance(tables, PlacedTables) else loader


def _disk(placement: Placement, size: tuple[int, int, int], device: str) -> DiskStore:
    placement.refuse_full_disk(size[0], size[2])
    return DiskStore(*size, placement.table_dir, placement.memory_cap_bytes, device)

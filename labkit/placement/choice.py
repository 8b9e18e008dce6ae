"""Tables where a placement puts them, as a model takes them: see docs/placement.md."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from labkit.fast import EmbeddingTables
from labkit.placement.cached import CachedStore
from labkit.placement.disk import DiskStore
from labkit.placement.remote import RemoteStore
from labkit.placement.row_store import HostStore, RowStore
from labkit.placement.settings import Placement, row_width
from labkit.placement.tables import Ahead, PlacedTables


def placed_tables(
    placement: Placement,
    optimiser: str = "sgd",
    *,
    device: str = "cpu",
    folder: Path | str = "runs",
) -> Callable[[Sequence[int], int], nn.Module]:
    """The argument `tables` of `Dlrm`: makes tables in this place.

    Args:
        placement: such as `Placement("cached", cache_rows="10%")`.
        optimiser: the optimiser of the tables: sgd, adagrad, rowwise-adagrad or adam.
        device: the device that computes, as torch names it.
        folder: folder of a table file where the placement names none.

    Raises:
        UserError: the tables have no room.
    """
    if placement.kind == "device":
        return EmbeddingTables

    def build(num_rows: Sequence[int], embedding_dim: int) -> PlacedTables:
        size = sum(num_rows), embedding_dim, row_width(optimiser, embedding_dim)
        store: RowStore
        if placement.kind == "remote":
            store = RemoteStore(*size[:2], optimiser, staleness=placement.staleness or 0, device=device)
        elif placement.kind == "cached":
            slots = placement.cached_rows(sum(num_rows))
            behind = _disk(placement, size, "cpu", Path(folder)) if placement.uses_disk else HostStore(*size)
            store = CachedStore(behind, slots, placement.cache_policy or "lru", device)
        else:
            is_on_disk = placement.uses_disk
            store = _disk(placement, size, device, Path(folder)) if is_on_disk else HostStore(*size, device)
        return PlacedTables(num_rows, embedding_dim, store, optimiser)

    return build


def ahead(tables: nn.Module, loader: Iterable[Any], categorical: int = 1) -> Iterable[Any]:
    """The batches of a loader, whose rows are fetched during the step before; for tables on the device the loader.

    `categorical` is the index of the int32 (B, F, L) in a batch, a tuple or list.
    """
    return Ahead(loader, tables, categorical) if isinstance(tables, PlacedTables) else loader


def _disk(placement: Placement, size: tuple[int, int, int], device: str, folder: Path) -> DiskStore:
    placement.refuse_full_disk(size[0], size[2], folder)
    return DiskStore(*size, placement.table_dir or folder, placement.memory_cap_bytes, device)

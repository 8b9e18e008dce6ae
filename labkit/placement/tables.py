"""The embedding tables of a DLRM on a store of rows, and their optimiser.

Shapes: B batch, F tables, L pooling factor, D embedding dim, W numbers of a row, R rows of all tables, U distinct rows
of a batch.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labkit import UserError, fast, tracking
from labkit.placement.cached import CachedStore
from labkit.placement.disk import DiskStore
from labkit.placement.remote import RemoteStore
from labkit.placement.row_store import DrawnWeight, Fetch, HostStore, RowStore, Update
from labkit.placement.settings import Placement, row_width


class Lookups:
    """The lookups of one batch, grouped by distinct row."""

    def __init__(self, categorical: Tensor, row_start: Tensor, device: torch.device):
        """`categorical` is int32 (B, F, L), row numbers within each table; `row_start` (F,)."""
        self.categorical = categorical
        rows = categorical.cpu() + row_start.view(1, -1, 1)  # (B, F, L)
        ordered, order = rows.flatten().sort(stable=True)
        distinct, places, counts = ordered.unique_consecutive(return_inverse=True, return_counts=True)
        self.rows: np.ndarray = distinct.long().numpy()  # (U,), ascending
        inverse = torch.empty_like(places)
        inverse[order] = places
        self.inverse = inverse.view(rows.shape).to(device)  # (B, F, L), indices into `rows`
        self._bags = (order // rows.shape[2]).to(device)  # (B F L,), the bag of each lookup, grouped by row
        self._starts = (counts.cumsum(0) - counts).to(device)  # (U,), where the group of a row begins
        self.fetch: Fetch | None = None

    def row_gradients(self, gradient: Tensor) -> Tensor:
        """The gradient (U, D) of the rows from that of the bags (B, F, D)."""
        return F.embedding_bag(self._bags, gradient.flatten(0, 1), self._starts, mode="sum")

    def is_of(self, categorical: Tensor) -> bool:
        own = self.categorical
        return own is categorical or (own.shape == categorical.shape and torch.equal(own, categorical.to(own.device)))


class PlacedTables(nn.Module):
    """Sums of the rows of each bag, from a store; equals `labkit.fast.EmbeddingTables`.

    A training step pulls the distinct rows of a batch and looks them up in what it received; a `PlacedOptimiser` pushes
    them. Evaluation reads rows and changes nothing.
    """

    def __init__(self, num_rows: Sequence[int], embedding_dim: int, store: RowStore, optimiser: str):
        """`store` has room for all rows and their state of `optimiser` (sgd, adagrad, rowwise-adagrad, adam)."""
        super().__init__()
        self.store, self.optimiser = store, optimiser
        self._num_rows, self._dim = list(num_rows), embedding_dim
        starts = torch.tensor([0, *num_rows[:-1]]).cumsum(0)
        self._row_start = starts.to(torch.int32 if sum(num_rows) < 2**31 else torch.int64)  # (F,)
        self._ahead: deque[Lookups] = deque()
        self.to_step: tuple[Lookups, Tensor, Tensor] | None = None
        """The batch of the latest backward pass, its rows' values (U, W), and its bags' gradient (B, F, D)"""

    def forward(self, categorical: Tensor) -> Tensor:
        """Return the sums (B, F, D) for int32 (B, F, L), row numbers within each table."""
        if not (self.training and torch.is_grad_enabled()):
            batch = self._lookups(categorical)
            return fast.look_up(self.store.peek(batch.rows)[:, : self._dim].contiguous(), batch.inverse)
        batch = self._prefetched(categorical) or self._lookups(categorical)
        values = self.store.pull(batch.rows, batch.fetch)  # (U, W)
        self.store.counters.lookups += categorical.numel()
        weight = values[:, : self._dim].detach().contiguous().requires_grad_()  # (U, D)
        return fast.Lookup.apply(weight, batch.inverse, partial(self._keep, batch, values))

    def _keep(self, batch: Lookups, values: Tensor, gradient: Tensor) -> None:
        if self.to_step is not None:
            raise UserError("a second backward pass came before the tables' optimiser stepped: do one per step.")
        self.to_step = batch, values, gradient

    def prefetch(self, categorical: Tensor) -> None:
        """Start to fetch the rows of a later batch, int32 (B, F, L). Training must use the batches in this order."""
        if len(self._ahead) > max(1, self.store.staleness):  # of batches that a resumed run skips
            self.store.drop(self._ahead.popleft().fetch)
        batch = self._lookups(categorical)
        batch.fetch = self.store.prefetch(batch.rows)
        self._ahead.append(batch)

    def forget_ahead(self) -> None:
        """Drop all prefetched batches."""
        while self._ahead:
            self.store.drop(self._ahead.popleft().fetch)

    def table_weights(self) -> list[DrawnWeight]:
        """What a model's initialisation needs of each table's weight (rows, D)."""
        tables = zip(self._num_rows, self._row_start.tolist(), strict=True)
        return [DrawnWeight(rows, self._dim, self.store.write_weights, first) for rows, first in tables]

    def metrics(self) -> dict[str, float]:
        """The counters of the store, for `run.log`."""
        return self.store.metrics()

    def _lookups(self, categorical: Tensor) -> Lookups:
        batch = Lookups(categorical, self._row_start, self.store.device)
        if len(batch.rows) and not 0 <= batch.rows[0] <= batch.rows[-1] < self.store.num_rows:
            raise UserError(
                f"a batch has rows {batch.rows[0]:,} to {batch.rows[-1]:,}, numbered over all tables, but there are "
                f"{self.store.num_rows:,}: give numbers from 0 to below the rows of their table."
            )
        return batch

    def _prefetched(self, categorical: Tensor) -> Lookups | None:
        """The prefetched lookups of this batch, if any; those of batches before it are dropped.

        Recognised by identity, else by content and not by order: a loop may skip batches, copy them to a device, or
        train on others in between, and a wrong guess would silently train on the wrong rows.
        """
        if not any(batch.is_of(categorical) for batch in self._ahead):
            return None
        while not (batch := self._ahead.popleft()).is_of(categorical):
            self.store.drop(batch.fetch)
        return batch

    # checkpoints have `weight` (R, D) of tables in memory, as for EmbeddingTables

    def _save_to_state_dict(self, destination: dict, prefix: str, keep_vars: bool) -> None:
        if self.store.is_in_memory:
            destination[prefix + "weight"] = self.store.memory()[:, : self._dim]

    def _load_from_state_dict(self, state_dict: dict, prefix: str, *rest: Any) -> None:
        *_, missing, _unexpected, errors = rest
        if not self.store.is_in_memory:
            return
        weight = state_dict.get(prefix + "weight")
        if weight is None:
            missing.append(prefix + "weight")
        elif weight.shape != (self.store.num_rows, self._dim):
            errors.append(f"{prefix}weight is {tuple(weight.shape)} and not {(self.store.num_rows, self._dim)}")
        else:
            self.store.memory()[:, : self._dim].copy_(weight)
            self.store.loaded()


class PlacedOptimiser:
    """Steps placed tables: rows are written back to their store together with their state."""

    def __init__(self, tables: PlacedTables, lr: float):
        self._tables, self._step = tables, 0
        self.param_groups: list[dict[str, Any]] = [{"params": [], "lr": lr}]
        self.keeps_best = tables.store.is_in_memory
        """Whether a run can keep the best weights; of tables outside memory it keeps the last"""

    def step(self) -> None:
        """Update the rows of the latest batch."""
        tables = self._tables
        if tables.to_step is None:
            raise UserError("the optimiser of the tables has no gradient: call loss.backward() before its step().")
        (batch, values, gradient), tables.to_step = tables.to_step, None
        self._step += 1
        update = Update(tables.optimiser, self.param_groups[0]["lr"], self._step)
        tables.store.update(batch.rows, values, batch.row_gradients(gradient), update)

    def zero_grad(self) -> None:
        """Nothing to do: there is no gradient."""

    def state_dict(self) -> dict[str, Any]:
        """The step, and the state of the rows, or the name of a copy of all rows next to the run's checkpoint."""
        store, state = self._tables.store, {"step": self._step, "lr": self.param_groups[0]["lr"]}
        if store.is_in_memory:
            return state | {"state": store.memory()[:, store.dim :]}
        return state | {"saved": store.save(_checkpoints(), self._step)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a `state_dict`.

        Raises:
            UserError: the copy of the rows is missing or truncated.
        """
        store = self._tables.store
        self._step, self.param_groups[0]["lr"] = state["step"], state["lr"]
        if store.is_in_memory:
            store.memory()[:, store.dim :].copy_(state["state"])
            store.loaded()
        else:
            store.load(_checkpoints(), state["saved"])


def _checkpoints() -> Path:
    run = tracking.open_run()
    if run is None:
        raise UserError("a copy of these tables needs a run: call this within `with labkit.Run(...) as run:`.")
    return run.folder / "checkpoint"


def placed_tables(
    placement: Placement, optimiser: str = "sgd", *, device: str = "cpu", folder: Path | str = "runs"
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
        return fast.EmbeddingTables

    def build(num_rows: Sequence[int], embedding_dim: int) -> PlacedTables:
        size = sum(num_rows), embedding_dim, row_width(optimiser, embedding_dim)

        def home(kind: str, device: str) -> RowStore:
            """The store of all rows."""
            if kind == "remote":
                return RemoteStore(*size[:2], optimiser, staleness=placement.staleness or 0, device=device)
            if kind == "disk":
                placement.refuse_full_disk(size[0], size[2], Path(folder))
                return DiskStore(*size, placement.table_dir or Path(folder), placement.memory_cap_bytes, device)
            return HostStore(*size, device)

        if placement.kind != "cached":
            return PlacedTables(num_rows, embedding_dim, home(placement.kind, device), optimiser)
        slots = placement.cached_rows(sum(num_rows))  # refuses too many before a server starts
        behind = home(placement.cache_over or "host", "cpu")
        store = CachedStore(behind, slots, placement.cache_policy or "lru", device)
        return PlacedTables(num_rows, embedding_dim, store, optimiser)

    return build


def ahead(tables: nn.Module, loader: Any, categorical: int = 1) -> Any:
    """The batches of a loader; each is given out when the fetch for the next one has begun.

    Batches are tuples or lists, with the int32 (B, F, L) at index `categorical`. For tables on the device it is the
    loader itself.
    """
    if not isinstance(tables, PlacedTables):
        return loader

    def fetched(batches: Iterator[Any]) -> Iterator[Any]:
        tables.forget_ahead()
        drawn: deque[Any] = deque()
        for batch in batches:
            tables.prefetch(batch[categorical])
            drawn.append(batch)
            if len(drawn) > max(1, tables.store.staleness):
                yield drawn.popleft()
        yield from drawn

    return tracking.ChangedLoader(loader, fetched)

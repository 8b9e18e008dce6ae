"""A cache of rows on the fast tier, in front of a store that has all of them; written back when a row is evicted.

What a batch needs is planned in the thread that asks, in numbers alone (`labkit.placement.cache`), and moved in
another, one batch after the other: so a row that goes is back in its store before anyone reads it there again.

Shapes: C slots, U distinct rows of a batch, W numbers of a row.
"""

from __future__ import annotations

import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from labkit.placement.cache import CacheIndex, Look
from labkit.placement.row_store import Fetch, RowStore


class CachedStore(RowStore):
    """Rows of a batch come into slots of the fast tier; those that find no slot are read and written around it."""

    def __init__(self, behind: RowStore, slots: int, policy: str, device: str = "cpu"):
        """`behind` is the store of all rows; `policy` is "lru" or "lfu"."""
        super().__init__(behind.num_rows, behind.dim, behind.width, device)
        self.behind, self.is_in_memory = behind, behind.is_in_memory
        self._policy = policy
        self._fast = torch.zeros(slots, self.width, device=self.device)  # (C, W)
        self._empty()

    def _empty(self) -> None:
        self.index = CacheIndex(self.num_rows, len(self._fast), self._policy)
        self._is_dirty = np.zeros(len(self._fast), bool)
        self._active: list[int] = []  # the look of the batch that is being trained on
        self._goes_around = False  # whether a row of it had no slot
        self._last_move: Future | None = None

    def write_weights(self, first: int, weights: np.ndarray) -> None:
        self.behind.write_weights(first, weights)

    def prefetch(self, rows: np.ndarray) -> Fetch:
        under_way = [*self._active, *(fetch.look for fetch in self._fetches)]
        look = self.index.look(rows, min(under_way, default=None))
        was_dirty = self._is_dirty[look.evicted_from]
        self._is_dirty[look.fetched_into] = False
        if self._stream is not None:  # rows that go were computed on the other stream
            self._stream.wait_stream(torch.cuda.current_stream(self.device))
        self._last_move = self._thread.submit(self._move, look, was_dirty)
        self._fetches.append(
            Fetch(rows, self._last_move, look=look.number, goes_around=look.missed > len(look.fetched))
        )
        self.counters.missed_rows += look.missed
        self.counters.read_bytes += 4 * self.width * len(look.fetched)
        self.counters.written_bytes += 4 * self.width * int(was_dirty.sum())
        return self._fetches[-1]

    def pull(self, rows: np.ndarray, fetch: Fetch | None = None) -> Tensor:
        began = time.perf_counter()
        fetch = fetch or self.prefetch(rows)
        self.drop(fetch)
        self._active = [fetch.look]
        self._goes_around = fetch.goes_around
        # a row without a slot may be on its way to where it is read, or into a slot for the next batch
        self._settle(self._last_move if self._goes_around else fetch.future)
        values = self._gathered(rows)
        around = int((self.index.slots(rows) < 0).sum()) if self._goes_around else 0
        self._count_pull(len(rows), 4 * self.width * around, began)
        return values

    def peek(self, rows: np.ndarray) -> Tensor:
        self._settle()
        return self._gathered(rows)

    def push(self, rows: np.ndarray, values: Tensor) -> None:
        if self._goes_around:
            self._settle()
        self._active = []
        slots = self.index.slots(rows)
        has_slot = slots >= 0
        if has_slot.all():
            self._fast[self._on_device(slots)] = values
        else:
            self._fast[self._on_device(slots[has_slot])] = values[self._on_device(has_slot)]
            self.behind.write(rows[~has_slot], values[self._on_device(~has_slot)].cpu().numpy())
            self.counters.written_bytes += 4 * self.width * int((~has_slot).sum())
        self._is_dirty[slots[has_slot]] = True

    def metrics(self) -> dict[str, float]:
        counted = self.counters
        rate = {"placement_hit_rate": 1 - counted.missed_rows / counted.lookups} if counted.lookups else {}
        return self.behind.metrics() | super().metrics() | rate

    def flush(self) -> None:
        self._settle()
        slots = np.flatnonzero(self._is_dirty)
        self.behind.write(self.index.rows(slots), self._fast[self._on_device(slots)].cpu().numpy())
        self._is_dirty[:] = False
        self.behind.flush()

    def close(self) -> None:
        super().close()
        self.behind.close()

    def weight(self) -> Tensor:
        self.flush()
        return self.behind.weight()

    def state(self) -> Tensor:
        self.flush()
        return self.behind.state()

    def loaded(self) -> None:
        self._settle()
        self._fetches.clear()
        self._empty()

    def save(self, folder: Path, step: int) -> dict[str, Any]:
        self.flush()
        return self.behind.save(folder, step)

    def load(self, folder: Path, saved: dict[str, Any]) -> None:
        self.behind.load(folder, saved)
        self.loaded()

    def _move(self, look: Look, was_dirty: np.ndarray) -> None:
        """Bring back what was evicted, and then what was fetched into its place."""
        with torch.cuda.stream(self._stream):  # which does nothing where there is none
            back = self._on_device(look.evicted_from[was_dirty])
            if len(back):
                self.behind.write(look.evicted[was_dirty], self._part(back))
            if not len(look.fetched):
                return
            values, into = torch.from_numpy(self.behind.read(look.fetched)), self._on_device(look.fetched_into)
            if self._stream is None:
                self._fast.numpy()[into.numpy()] = values.numpy()  # torch would start threads of its own here
            else:
                self._fast.index_copy_(0, into, values.pin_memory().to(self.device, non_blocking=True))

    def _part(self, slots: Tensor) -> np.ndarray:
        if self._stream is None:
            return np.take(self._fast.numpy(), slots.numpy(), axis=0, mode="clip")
        return self._fast[slots].cpu().numpy()

    def _settle(self, move: Future | None = None) -> None:
        """Wait for a move, by default for all, and raise what went wrong on it."""
        if move or self._last_move:
            (move or self._last_move).result()
        if self._stream is not None:
            torch.cuda.current_stream(self.device).wait_stream(self._stream)

    def _gathered(self, rows: np.ndarray) -> Tensor:
        """The values (U, W) of rows, wherever they are by now."""
        slots = self.index.slots(rows)
        has_slot = slots >= 0
        if has_slot.all():
            return self._fast[self._on_device(slots)]
        values = torch.empty(len(rows), self.width, device=self.device)
        values[self._on_device(has_slot)] = self._fast[self._on_device(slots[has_slot])]
        values[self._on_device(~has_slot)] = torch.from_numpy(self.behind.read(rows[~has_slot])).to(self.device)
        return values

    def _on_device(self, numbers: np.ndarray) -> Tensor:
        return torch.from_numpy(numbers).to(self.device)

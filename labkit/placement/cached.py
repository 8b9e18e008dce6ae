"""A cache of rows on the fast tier, in front of a store that has all of them; a row is written back when it is evicted.

`CacheIndex` plans what a batch needs, in row numbers only, in the thread that asks. Another thread moves the rows, one
batch after the other, so an evicted row is back in its store before it is read there again.

Shapes: R rows, C slots, U distinct rows of a batch, M of them that were missing, E evicted rows, W numbers of a row.
"""

import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from labkit.placement.row_store import Fetch, RowStore

WHEN_BITS = 40
"""Bits of a score for the time of the last use, below those for the number of uses; enough for 10^12 uses"""


class Look(NamedTuple):
    """The changes that a batch made in a cache."""

    number: int
    """Number of the look, from 1"""
    fetched: np.ndarray
    """Fetched rows int64 (M,), without those that found no slot"""
    fetched_into: np.ndarray
    """Slots int64 (M,) of the fetched rows"""
    evicted: np.ndarray
    """Evicted rows int64 (E,)"""
    evicted_from: np.ndarray
    """Slots int64 (E,) of the evicted rows, a part of `fetched_into`"""
    missed: int
    """Number of rows that were missing, including those that found no slot"""


class CacheIndex:
    """The rows in the slots of a cache, evicted by "lru" or "lfu" (of equally frequent rows the least recent).

    Frequency is the number of batches that used a row since it was fetched. Each slot has a score, which grows with
    each use; the lowest is evicted. Sorting all scores at each look would be expensive, so the slots with the lowest
    scores are put into a pool, with their highest score as the limit. Scores only grow, so no slot outside the pool can
    fall below the limit. Evicting from the pool is therefore exact until no slot in it is below the limit.
    """

    def __init__(self, num_rows: int, slots: int, policy: str):
        """An empty cache, which takes 4 bytes per row and 32 per slot."""
        self.slot_of = np.full(num_rows, -1, np.int32)  # (R,): the slot of each row; −1 if it has none
        self.row_in = np.full(slots, -1, np.int64)  # (C,): the row in each slot that holds one
        self._score = np.zeros(slots, np.int64)
        self._looked = np.zeros(slots, np.int64)  # number of the look that used it last
        self._pool = np.empty(0, np.int64)
        self._limit = -1
        self._counts = policy == "lfu"
        self._filled = self._uses = self._number = 0

    def look(self, rows: np.ndarray, protected: int | None = None) -> Look:
        """Use the distinct rows (U,) of a batch: first those that are in the cache, then the others, which are fetched.

        Rows used in look `protected` or later are not evicted; by default those are the rows of this batch. If too few
        slots are free, the last rows get none.
        """
        self._number += 1
        slots = self.slot_of[rows]
        is_there = slots >= 0
        missing = rows[~is_there]
        self._use(slots[is_there], self._score[slots[is_there]] >> WHEN_BITS)
        free = np.arange(self._filled, min(self._filled + len(missing), len(self._score)))
        self._filled += len(free)
        self._use(free, 0)  # or they could be evicted in this look
        victims = self._victims(len(missing) - len(free), self._number if protected is None else protected)
        into = np.concatenate([free, victims])
        evicted, fetched = self.row_in[victims], missing[: len(into)]
        self.slot_of[evicted] = -1
        self.slot_of[fetched], self.row_in[into] = into, fetched
        self._use(victims, 0)
        return Look(self._number, fetched, into, evicted, victims, len(missing))

    def _use(self, slots: np.ndarray, before: np.ndarray | int) -> None:
        when = np.arange(self._uses, self._uses + len(slots))
        self._uses += len(slots)
        self._score[slots] = ((before + 1) << WHEN_BITS) + when if self._counts else when
        self._looked[slots] = self._number

    def _victims(self, count: int, protected: int) -> np.ndarray:
        """Up to `count` slots with the lowest scores."""
        if count <= 0:
            return np.empty(0, np.int64)
        may_go = self._below_limit(protected)
        if len(may_go) < count:
            size = min(len(self._score), max(4 * count, len(self._score) // 64))
            while True:
                whole = size == len(self._score)
                self._pool = np.arange(size) if whole else np.argpartition(self._score, size - 1)[:size]
                self._limit = int(self._score[self._pool].max())
                may_go = self._below_limit(protected)
                if whole or len(may_go) >= count:  # otherwise protected slots have the lowest scores
                    break
                size = min(len(self._score), 4 * size)
        if len(may_go) > count:
            may_go = may_go[np.argpartition(self._score[may_go], count - 1)[:count]]
        return may_go

    def _below_limit(self, protected: int) -> np.ndarray:
        pool = self._pool
        return pool[(self._score[pool] <= self._limit) & (self._looked[pool] < protected)]


class CachedStore(RowStore):
    """Rows of a batch are moved to slots of the fast tier; those without a slot are read and written around it."""

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
        self._active: list[int] = []  # look of the batch that is being trained on
        self._goes_around = False  # whether one of its rows has no slot
        self._last_move: Future | None = None

    def write_weights(self, first: int, weights: np.ndarray) -> None:
        self.behind.write_weights(first, weights)

    def prefetch(self, rows: np.ndarray) -> Fetch:
        under_way = [*self._active, *(fetch.look for fetch in self._fetches)]
        look = self.index.look(rows, min(under_way, default=None))
        was_dirty = self._is_dirty[look.evicted_from]
        self._is_dirty[look.fetched_into] = False
        if self._stream is not None:  # evicted rows were computed on the other stream
            self._stream.wait_stream(torch.cuda.current_stream(self.device))
        self._last_move = self._thread.submit(self._move, look, was_dirty)
        goes_around = look.missed > len(look.fetched)
        self._fetches.append(Fetch(rows, self._last_move, look=look.number, goes_around=goes_around))
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
        around = int((self.index.slot_of[rows] < 0).sum()) if self._goes_around else 0
        self._count_pull(len(rows), 4 * self.width * around, began)
        return values

    def peek(self, rows: np.ndarray) -> Tensor:
        self._settle()
        return self._gathered(rows)

    def push(self, rows: np.ndarray, values: Tensor) -> None:
        if self._goes_around:
            self._settle()
        self._active = []
        slots = self.index.slot_of[rows]
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

    def _flush(self) -> None:
        """Write all changed rows back."""
        self._settle()
        slots = np.flatnonzero(self._is_dirty)
        self.behind.write(self.index.row_in[slots], self._fast[self._on_device(slots)].cpu().numpy())
        self._is_dirty[:] = False

    def close(self) -> None:
        super().close()
        self.behind.close()

    def memory(self) -> Tensor:
        self._flush()
        return self.behind.memory()

    def loaded(self) -> None:
        self._settle()
        self._fetches.clear()
        self._empty()

    def save(self, folder: Path, step: int) -> dict[str, Any]:
        self._flush()
        return self.behind.save(folder, step)

    def load(self, folder: Path, saved: dict[str, Any]) -> None:
        self.behind.load(folder, saved)
        self.loaded()

    def _move(self, look: Look, was_dirty: np.ndarray) -> None:
        """Write evicted rows back, then read the fetched rows into their slots."""
        with torch.cuda.stream(self._stream):  # without effect if there is no stream
            back = self._on_device(look.evicted_from[was_dirty])
            if len(back):
                self.behind.write(look.evicted[was_dirty], self._part(back))
            if not len(look.fetched):
                return
            values, into = torch.from_numpy(self.behind.read(look.fetched)), self._on_device(look.fetched_into)
            if self._stream is None:
                self._fast.numpy()[into.numpy()] = values.numpy()  # torch would start threads here
            else:
                self._fast.index_copy_(0, into, values.pin_memory().to(self.device, non_blocking=True))

    def _part(self, slots: Tensor) -> np.ndarray:
        if self._stream is None:
            return np.take(self._fast.numpy(), slots.numpy(), axis=0, mode="clip")
        return self._fast[slots].cpu().numpy()

    def _settle(self, move: Future | None = None) -> None:
        """Wait for a move, by default for all of them, and raise its error."""
        if latest := move or self._last_move:
            latest.result()
        if self._stream is not None:
            torch.cuda.current_stream(self.device).wait_stream(self._stream)

    def _gathered(self, rows: np.ndarray) -> Tensor:
        """The values (U, W) of rows, with or without a slot."""
        slots = self.index.slot_of[rows]
        has_slot = slots >= 0
        if has_slot.all():
            return self._fast[self._on_device(slots)]
        values = torch.empty(len(rows), self.width, device=self.device)
        values[self._on_device(has_slot)] = self._fast[self._on_device(slots[has_slot])]
        values[self._on_device(~has_slot)] = torch.from_numpy(self.behind.read(rows[~has_slot])).to(self.device)
        return values

    def _on_device(self, numbers: np.ndarray) -> Tensor:
        return torch.from_numpy(numbers).to(self.device)

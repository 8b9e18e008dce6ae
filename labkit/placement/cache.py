"""Which rows a cache holds and which it evicts, in numbers alone: what a cache of rows uses, and what simulates one.

Shapes: R rows, C slots, U distinct rows of a batch, M of them that were not there, E rows that had to go.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

WHEN_BITS = 40
"""Bits of a score that say when, below those that say how often: 10^12 rows looked at"""


class Look(NamedTuple):
    """What a batch changed in a cache."""

    number: int
    """Of the look, from 1"""
    fetched: np.ndarray
    """Rows int64 (M,) that came in, less those that found no slot"""
    fetched_into: np.ndarray
    """Their slots int64 (M,)"""
    evicted: np.ndarray
    """Rows int64 (E,) that went"""
    evicted_from: np.ndarray
    """Their slots int64 (E,), a part of `fetched_into`"""
    missed: int
    """Rows that were not there, with those that found no slot"""


class CacheIndex:
    """The rows in the slots of a cache, evicted by "lru", or by "lfu", of equals the least recent.

    Frequency counts the batches since a row came in. A slot has a score, which grows with each use, and the lowest is
    evicted. Sorting all scores at each look would be dear. So now and then the lowest are put into a pool, with the
    highest of theirs as the limit: no other slot can be below it from then on, and what is evicted comes from the
    pool, exactly as if all had been sorted, until nothing in it is below the limit.
    """

    def __init__(self, num_rows: int, slots: int, policy: str):
        """An empty cache; it takes 4 bytes a row and 32 a slot."""
        self._slot_of = np.full(num_rows, -1, np.int32)  # (R,)
        self._row_in = np.full(slots, -1, np.int64)  # (C,)
        self._score = np.zeros(slots, np.int64)
        self._looked = np.zeros(slots, np.int64)  # the number of the look that used it last
        self._pool = np.empty(0, np.int64)
        self._limit = -1
        self._counts = policy == "lfu"
        self._filled = self._uses = self._number = 0

    def slots(self, rows: np.ndarray) -> np.ndarray:
        """The slot int32 (U,) of each row; −1 where it has none."""
        return self._slot_of[rows]

    def rows(self, slots: np.ndarray) -> np.ndarray:
        """The rows in slots that hold one."""
        return self._row_in[slots]

    def look(self, rows: np.ndarray, protected: int | None = None) -> Look:
        """Use the distinct rows (U,) of a batch: those that are there first, then the others, which come in.

        Rows used in look `protected` or later stay; by default those of this batch. Where too few may go, the last
        rows find no slot.
        """
        self._number += 1
        slots = self._slot_of[rows]
        is_there = slots >= 0
        missing = rows[~is_there]
        self._use(slots[is_there], self._score[slots[is_there]] >> WHEN_BITS)
        free = np.arange(self._filled, min(self._filled + len(missing), len(self._score)))
        self._filled += len(free)
        self._use(free, 0)  # or they could be evicted at once
        victims = self._victims(len(missing) - len(free), self._number if protected is None else protected)
        into = np.concatenate([free, victims])
        evicted, fetched = self._row_in[victims], missing[: len(into)]
        self._slot_of[evicted] = -1
        self._slot_of[fetched], self._row_in[into] = into, fetched
        self._use(victims, 0)
        return Look(self._number, fetched, into, evicted, victims, len(missing))

    def _use(self, slots: np.ndarray, before: np.ndarray | int) -> None:
        when = np.arange(self._uses, self._uses + len(slots))
        self._uses += len(slots)
        self._score[slots] = ((before + 1) << WHEN_BITS) + when if self._counts else when
        self._looked[slots] = self._number

    def _victims(self, count: int, protected: int) -> np.ndarray:
        """Up to so many slots with the lowest scores."""
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
                if whole or len(may_go) >= count:  # else slots that may not go have the lowest scores
                    break
                size = min(len(self._score), 4 * size)
        if len(may_go) > count:
            may_go = may_go[np.argpartition(self._score[may_go], count - 1)[:count]]
        return may_go

    def _below_limit(self, protected: int) -> np.ndarray:
        pool = self._pool
        return pool[(self._score[pool] <= self._limit) & (self._looked[pool] < protected)]


def simulate_hit_rate(
    batches: Iterable[np.ndarray], num_rows: int, cache_rows: int, policy: str = "lru", *, warm_up: int = 0
) -> float:
    """The share of lookups that a cache answers: all but one for each distinct row of a batch that is not there.

    Args:
        batches: row numbers of each batch, of any shape; batches of one are the textbook's cache.
        num_rows: that there are.
        cache_rows: that it holds.
        policy: "lru" or "lfu".
        warm_up: batches at first that do not count.
    """
    index, lookups, missed = CacheIndex(num_rows, cache_rows, policy), 0, 0
    for number, batch in enumerate(batches):
        look = index.look(np.unique(batch))
        if number >= warm_up:
            lookups += np.size(batch)
            missed += look.missed
    return 1 - missed / max(1, lookups)

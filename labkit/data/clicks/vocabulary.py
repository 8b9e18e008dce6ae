"""From the values of a categorical feature to rows of its embedding table. Row 0 is for unknown and rare
values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

MERGE_AT = 2**16
"""New values wait until there are this many, or as many as there are known ones, before they are merged."""


class ValueCounter:
    """Counts the values of one feature in bounded memory.

    Beyond `capacity` distinct values the rarest are forgotten, as in lossy counting (Manku and Motwani,
    VLDB 2002): a value is then missing at most `undercount` of its occurrences.
    """

    def __init__(self, capacity: int):
        self.capacity = capacity
        self.undercount = 0
        self._values = np.empty(0, dtype=np.uint32)
        self._counts = np.empty(0, dtype=np.int64)
        self._new: list[tuple[np.ndarray, np.ndarray]] = []
        self._waiting = 0

    def add(self, values: np.ndarray, counts: np.ndarray) -> None:
        """Count values uint32 (n,) that occurred `counts` (n,) times, perhaps 0; one may be named more than once."""
        seen = counts > 0
        self._new.append((values[seen], counts[seen]))
        self._waiting += len(values)
        if self._waiting > max(MERGE_AT, len(self._values)):
            self._merge()

    def counts(self) -> tuple[np.ndarray, np.ndarray]:
        """Distinct values, ascending, and how often each was seen."""
        self._merge()
        return self._values, self._counts

    def _merge(self) -> None:
        values = np.concatenate([self._values, *(found for found, _ in self._new)])
        counts = np.concatenate([self._counts, *(seen for _, seen in self._new)])
        self._new, self._waiting = [], 0
        self._values, place = np.unique(values, return_inverse=True)
        self._counts = np.bincount(place, weights=counts, minlength=len(self._values)).astype(np.int64)
        if len(self._values) > self.capacity:
            # Halving, not trimming to the capacity: the next merge would otherwise come at once.
            rarest = np.partition(self._counts, -self.capacity // 2)[-self.capacity // 2]
            keep = self._counts > rarest
            self._values, self._counts = self._values[keep], self._counts[keep]
            self.undercount += int(rarest)


@dataclass(frozen=True)
class Vocabulary:
    """The values that have a row of their own."""

    values: np.ndarray
    """(V,) ascending"""
    rows: np.ndarray
    """int32 (V,): from 1, the most frequent first"""

    @classmethod
    def of_counts(cls, values: np.ndarray, counts: np.ndarray, *, min_count: int, max_rows: int) -> Vocabulary:
        """Give a row to each value seen `min_count` times, the most frequent first, in a table of
        `max_rows` rows."""
        order = np.argsort(-counts, kind="stable")
        order = order[counts[order] >= min_count][: max_rows - 1]
        chosen = values[order]
        ascending = np.argsort(chosen, kind="stable")
        return cls(chosen[ascending], (ascending + 1).astype(np.int32))

    @property
    def num_rows(self) -> int:
        return len(self.values) + 1

    def lookup(self, values: np.ndarray) -> np.ndarray:
        """Table rows int32 (n,) of values (n,); 0 where a value is unknown."""
        if len(self.values) == 0:
            return np.zeros(len(values), dtype=np.int32)
        order = np.argsort(values)
        ascending = values[order]  # as each is near the one before, they are found twice as fast
        place = np.searchsorted(self.values, ascending).clip(max=len(self.values) - 1)
        found = np.empty(len(values), np.int32)
        found[order] = np.where(self.values[place] == ascending, self.rows[place], np.int32(0))
        return found


@dataclass(frozen=True)
class Hashing:
    """Every value gets a row by its hash, which it may share. Needs no pass over the data and no memory."""

    num_rows: int

    def lookup(self, values: np.ndarray) -> np.ndarray:
        """Table rows int32 (n,), from 1, of uint32 values (n,)."""
        return (scramble(values) % np.uint32(self.num_rows - 1)).astype(np.int32) + 1


def scramble(values: np.ndarray) -> np.ndarray:
    """A bijection of the 32-bit numbers that looks random: MurmurHash3's finaliser (public domain)."""
    mixed = values.astype(np.uint32)
    mixed ^= mixed >> np.uint32(16)
    mixed *= np.uint32(0x85EBCA6B)
    mixed ^= mixed >> np.uint32(13)
    mixed *= np.uint32(0xC2B2AE35)
    mixed ^= mixed >> np.uint32(16)
    return mixed

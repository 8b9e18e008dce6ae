"""From the values of a categorical feature to rows of its embedding table. Row 0 is for unknown and rare values."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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
        self._known: list[tuple[np.ndarray, np.ndarray]] = []
        self._waiting = 0
        self._distinct = 0

    def add(self, values: np.ndarray) -> None:
        """Count values uint32 (n,)."""
        self._known.append(np.unique(values, return_counts=True))
        self._waiting += len(self._known[-1][0])
        if self._waiting > max(MERGE_AT, self._distinct):
            self.counts()

    def counts(self) -> tuple[np.ndarray, np.ndarray]:
        """Distinct values, ascending, and how often each was seen."""
        values, place = np.unique(np.concatenate([values for values, _ in self._known]), return_inverse=True)
        counts = np.bincount(place, np.concatenate([counts for _, counts in self._known])).astype(np.int64)
        if len(values) > self.capacity:
            # Halving, not trimming to the capacity: the next merge would otherwise come at once.
            rarest = np.partition(counts, -self.capacity // 2)[-self.capacity // 2]
            values, counts = values[counts > rarest], counts[counts > rarest]
            self.undercount += int(rarest)
        self._known, self._waiting, self._distinct = [(values, counts)], 0, len(values)
        return values, counts


def vocabulary_of(values: np.ndarray, counts: np.ndarray, *, min_count: int, max_rows: int) -> pa.Array:
    """The values seen `min_count` times, the most frequent first: as many as fit a table of `max_rows` beside row 0."""
    order = np.argsort(-counts, kind="stable")
    return pa.array(values).take(pa.array(order[counts[order] >= min_count][: max_rows - 1]))


def rows_of(values: np.ndarray, vocabulary: pa.Array) -> np.ndarray:
    """Table rows int32 (n,) of values (n,): from 1, in the order of the vocabulary; 0 where a value is unknown."""
    found = pc.index_in(pa.array(values), vocabulary)
    return pc.fill_null(found, -1).to_numpy() + np.int32(1)


def hashed_rows(values: np.ndarray, num_rows: int) -> np.ndarray:
    """Table rows int32 (n,), from 1, of uint32 values (n,) by their hash: needs no count, and values may share one."""
    return (scramble(values) % np.uint32(num_rows - 1)).astype(np.int32) + 1


def scramble(values: np.ndarray) -> np.ndarray:
    """A bijection of the 32-bit numbers that looks random: MurmurHash3's finaliser (public domain)."""
    mixed = values.astype(np.uint32)
    mixed ^= mixed >> np.uint32(16)
    mixed *= np.uint32(0x85EBCA6B)
    mixed ^= mixed >> np.uint32(13)
    mixed *= np.uint32(0xC2B2AE35)
    mixed ^= mixed >> np.uint32(16)
    return mixed

"""Categories by Zipf's law, drawn in constant time each."""

from __future__ import annotations

import numpy as np


class ZipfSampler:
    """Draws rows of one table: the r-th most frequent has a share proportional to r to the minus `exponent`.

    Row 0 stands for a missing category and has the share `missing_rate`. The frequent rows lie scattered
    over the table, as hashing or the order of arrival leaves them.
    """

    def __init__(self, num_rows: int, exponent: float, missing_rate: float, rng: np.random.Generator):
        share = np.arange(1, num_rows, dtype=np.float64) ** -exponent
        by_rank = np.concatenate([share * ((1 - missing_rate) / share.sum()), [missing_rate]])
        row_of = np.concatenate([1 + rng.permutation(num_rows - 1), [0]]).astype(np.int32)
        self.probability = np.empty(num_rows)
        """(num_rows,): the chance of each row"""
        self.probability[row_of] = by_rank
        self._keep, alias = alias_table(by_rank)
        self._first, self._second = row_of, row_of[alias]

    def draw(self, rng: np.random.Generator, size: int) -> np.ndarray:
        """Rows, int32 (size,)."""
        place = rng.random(size)
        place *= len(self._keep)
        slot = place.astype(np.int32)
        place -= slot
        return np.where(place < self._keep.take(slot), self._first.take(slot), self._second.take(slot))


def alias_table(probability: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The alias method's table (Walker 1977): slot i stands for i with chance `keep[i]`, else for `alias[i]`.

    Built without a loop by sweeping once over the cumulative deficits of the light slots and the cumulative
    excesses of the heavy ones (Hübschle-Schneider and Sanders, "Parallel Weighted Random Sampling", ESA
    2019).

    Returns:
        `keep` float64 (R,) and `alias` int64 (R,).

    >>> keep, alias = alias_table(np.array([0.5, 0.25, 0.25]))
    >>> keep.round(2).tolist(), alias[1:].tolist()
    ([1.0, 0.75, 0.75], [0, 0])
    """
    weight = probability * (len(probability) / probability.sum())
    keep, alias = np.ones_like(weight), np.arange(len(weight))
    light, heavy = np.flatnonzero(weight < 1), np.flatnonzero(weight >= 1)
    if len(light) == 0:
        return keep, alias
    deficit, excess = np.cumsum(1 - weight[light]), np.cumsum(weight[heavy] - 1)
    begins = np.concatenate([[0.0], deficit[:-1]])
    keep[light] = weight[light]
    alias[light] = heavy[np.searchsorted(excess, begins, side="right").clip(max=len(heavy) - 1)]
    # The last light slot that begins within a heavy slot's excess may take more than is left of it; the
    # heavy slot then becomes light itself, and the next heavy one makes it good.
    taken = np.concatenate([[0.0], deficit])[np.searchsorted(begins, excess, side="left")]
    keep[heavy] = (1 - (taken - excess)).clip(0, 1)
    alias[heavy[:-1]] = heavy[1:]
    keep[heavy[-1]] = 1
    return keep, alias

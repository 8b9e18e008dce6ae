"""One quantity of one run as it grows: whole while it is short, then the extremes and means of even stretches of it."""

import numpy as np

MOST_STRETCHES = 1024
"""Stretches that are held in memory, about one for each pixel; from there on, two at a time become one"""
MOST_MARKS = 200
"""Values that are not numbers of which the places are held; the rest is counted"""
LOW, HIGH, MEAN = range(3)


class Curve:
    """Rows in order of time, of which the last column is the value.

    A value that is not finite is no part of any stretch, so that one NaN hides nothing else: it is a mark of its own.
    """

    def __init__(self, width: int):
        self.size = 1
        """Rows per stretch; as long as it is 1 no row was left out"""
        self.count = 0
        """Rows that were taken, finite or not"""
        self.odd = np.empty((0, width))
        """The first rows whose value is NaN or infinite"""
        self.odd_count = 0
        self.last = np.full(width, np.nan)
        """The latest row"""
        self._full = np.empty((0, 3, width))
        self._tail = np.empty((0, width))
        """Rows that do not fill a stretch yet"""

    def append(self, rows: np.ndarray) -> None:
        """Take new rows: (N, width)."""
        if not len(rows):
            return
        self.count, self.last = self.count + len(rows), rows[-1].copy()  # a view would keep all rows in memory
        finite = np.isfinite(rows[:, -1])
        if not finite.all():
            self.odd_count += int((~finite).sum())
            self.odd = np.concatenate([self.odd, rows[~finite]])[:MOST_MARKS]
            rows = rows[finite]
        tail = np.concatenate([self._tail, rows])
        while len(tail) >= self.size:
            taken = self.size * min(len(tail) // self.size, MOST_STRETCHES - len(self._full))
            new = _joined(np.broadcast_to(tail[:taken, None], (taken, 3, tail.shape[1])), self.size)
            self._full, tail = np.concatenate([self._full, new]), tail[taken:]
            if len(self._full) == MOST_STRETCHES:
                self._full, self.size = _joined(self._full, 2), 2 * self.size
        self._tail = tail.copy()

    @property
    def stretches(self) -> np.ndarray:
        """(S, 3, width): of each stretch the row with the lowest value, that with the highest, and the mean row."""
        tail = self._tail
        if not len(tail):
            return self._full
        rows = np.broadcast_to(tail[:, None], (len(tail), 3, tail.shape[1]))
        return np.concatenate([self._full, _joined(rows, len(tail))])

    def rows(self, most: int = 2 * MOST_STRETCHES) -> np.ndarray:
        """(N, width): the rows in order of time, or the extremes of stretches where there are more than `most`."""
        stretches = self.stretches
        is_whole = self.size == 1 and len(stretches) <= most
        return extremes(stretches if is_whole else coarser(stretches, max(most // 2, 1)))


def _joined(stretches: np.ndarray, count: int) -> np.ndarray:
    """Every `count` stretches as one; their number is a multiple of it."""
    if count == 1:
        return np.array(stretches)
    groups = stretches.reshape(-1, count, *stretches.shape[1:])
    at = np.arange(len(groups))
    low = groups[at, groups[:, :, LOW, -1].argmin(1), LOW]
    high = groups[at, groups[:, :, HIGH, -1].argmax(1), HIGH]
    return np.stack([low, high, groups[:, :, MEAN].mean(1)], axis=1)


def coarser(stretches: np.ndarray, most: int) -> np.ndarray:
    """At most that many stretches; each extreme of them stays."""
    count = -(-len(stretches) // most) if len(stretches) > most else 1
    even = len(stretches) // count * count
    parts = [_joined(stretches[:even], count)]
    if even < len(stretches):
        parts.append(_joined(stretches[even:], len(stretches) - even))
    return np.concatenate(parts)


def extremes(stretches: np.ndarray) -> np.ndarray:
    """(N, width): lowest and highest row of each stretch, in order of time, and a row that is both only once."""
    low, high = stretches[:, LOW], stretches[:, HIGH]
    first = (low[:, 0] <= high[:, 0])[:, None]
    pairs = np.stack([np.where(first, low, high), np.where(first, high, low)], axis=1)
    is_one = (low == high).all(axis=1)
    keep = np.stack([np.ones(len(pairs), bool), ~is_one], axis=1)
    return pairs[keep]


def within(stretches: np.ndarray, column: int, start: float | None, end: float | None) -> np.ndarray:
    """The stretches between two places on an axis, and one more at each side, so that lines reach the edges."""
    at = stretches[:, MEAN, column]
    first = 0 if start is None else max(int(np.searchsorted(at, start)) - 1, 0)
    last = len(at) if end is None else int(np.searchsorted(at, end, side="right")) + 1
    return stretches[first:last]


def smoothed(stretches: np.ndarray, factor: float, size: int) -> np.ndarray:
    """(S,) the exponential moving average of the rows' values at the end of each stretch of `size` rows.

    `factor` is the weight of what came before, per row; the start is corrected for (Kingma and Ba 2015, section 3).
    """
    from scipy.signal import lfilter

    keep = factor**size
    sums = lfilter([1 - keep], [1, -keep], stretches[:, MEAN, -1])
    return sums / (1 - keep ** np.arange(1, len(sums) + 1))

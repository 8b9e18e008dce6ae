"""Which call was made by which: parents and self times of events that lie within each other on one thread."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd


def nest(lane: np.ndarray, start_us: np.ndarray, duration_us: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Parents and self times.

    Args:
        lane: (N,) which thread each event is on.
        start_us: (N,) when it began.
        duration_us: (N,) how long it took, what it called included.

    Returns:
        parent: (N,) the index of the event that directly encloses each one on its lane, −1 where there is none.
        self_us: (N,) its time without that of its children.

    An event that begins within another one and ends after it, which clocks of low resolution make, counts as its child.

    >>> parent, own = nest(np.zeros(3), np.array([0.0, 1.0, 5.0]), np.array([10.0, 3.0, 2.0]))
    >>> parent.tolist(), own.tolist()
    ([-1, 0, 0], [5.0, 3.0, 2.0])
    """
    order = np.lexsort((-duration_us, start_us, lane))
    lanes, starts, ends = (values[order].tolist() for values in (lane, start_us, start_us + duration_us))
    parent = np.full(len(order), -1, dtype=np.int64)
    open_events: list[tuple[int, float]] = []  # (index, end), outermost first
    current = None
    for place, index in enumerate(order.tolist()):
        if lanes[place] != current:
            open_events, current = [], lanes[place]
        start = starts[place]
        while open_events and open_events[-1][1] <= start:
            open_events.pop()
        if open_events:
            parent[index] = open_events[-1][0]
        open_events.append((index, ends[place]))
    self_us = duration_us.astype(np.float64, copy=True)
    has_parent = parent >= 0
    np.subtract.at(self_us, parent[has_parent], duration_us[has_parent])
    return parent, self_us


def ancestors(parent: np.ndarray) -> Iterator[np.ndarray]:
    """The row of each event's parent, of that one's, and so on: (N,) each, −1 where there is none."""
    above = parent
    while (above >= 0).any():
        yield above
        above = np.where(above >= 0, parent[above], -1)


def within(marked: np.ndarray, parent: np.ndarray) -> np.ndarray:
    """Whether each event lies within a marked one, at whatever depth (N,)."""
    inside = np.zeros(len(marked), dtype=bool)
    for above in ancestors(parent):
        inside |= (above >= 0) & marked[above]
    return inside


def innermost(events: pd.DataFrame, parent: np.ndarray, moments_us: np.ndarray) -> np.ndarray:
    """The innermost event, of one thread, that was going on at each moment: their labels (M,), −1 where none was.

    Args:
        events: in order of time, labelled by their rows in `parent`.
        parent: (N,) of all events of the trace.
        moments_us: (M,).
    """
    start = events["start_us"].to_numpy()
    end = dict(zip(events.index.tolist(), (start + events["duration_us"].to_numpy()).tolist(), strict=True))
    found = []
    for moment, place in zip(moments_us.tolist(), np.searchsorted(start, moments_us, side="right") - 1, strict=True):
        row = int(events.index[place]) if place >= 0 else -1
        while row >= 0 and end.get(row, -1.0) < moment:
            row = int(parent[row])
        found.append(row)
    return np.array(found, dtype=np.int64)

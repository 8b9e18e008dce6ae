"""The bulk load of a learned index: which keys a line fits well enough for a leaf, and the inner nodes above them."""

import numpy as np

from labkit.indexes.kernels import enlarged
from labkit.indexes.learned.layout import (
    MARGIN,
    NEXT,
    NODES,
    POINTERS,
    ROOT,
    SLOTS,
    WORK,
    Learned,
    lay_out,
    room_for,
)

KEYS_A_POINTER, FEW_KEYS, MOST_KEYS = 512, 1024, 2**15
"""Keys per pointer of an inner node, of a leaf that need not fit, and of the largest leaf"""
GOOD_FIT = 4.0
"""Doublings of the exponential search, on average, up to which a line fits"""
MOST_POINTERS = 2**16


def build(keys: np.ndarray, values: np.ndarray, more: int, *, bounded: bool = False) -> Learned:
    """Load sorted keys; `more` keys will probably find room."""
    count = len(keys)
    slots = (2 * count + 8 * more) // 64 * 64 + 2**12
    nodes = count // 32 + more // 32 + 2**10
    index = Learned(
        np.zeros(8 * nodes, np.int64),
        np.zeros(2 * nodes),
        np.zeros(count // 16 + more // 16 + 2**12, np.int64),
        np.zeros(slots, np.int64),
        np.zeros(slots, np.int64),
        np.zeros(slots // 64, np.int64),
        np.array([0, 0, 0, 0, bounded, 0]),
        np.zeros(len(WORK), np.int64),
    )
    all_taken, last = np.full(count // 64 + 1, -1), -1

    def load(begin: int, end: int) -> int:
        """Load the keys [begin, end) into a node."""
        nonlocal index, last
        node, number = int(index.meta[NODES]), end - begin
        fanout = min(max(16, 1 << (number // KEYS_A_POINTER).bit_length()), MOST_POINTERS)
        room = room_for(number, 0.7)
        while (
            8 * node + 8 > len(index.heads)
            or index.meta[POINTERS] + fanout > len(index.pointers)
            or index.meta[SLOTS] + room > len(index.keys)
        ):
            index = enlarged(index)
        index.meta[NODES] += 1
        if fits(begin, end):
            lay_out(index, node, keys, values, all_taken, begin, end, number, room, room)
            index.heads[8 * node + NEXT] = -1
            if last >= 0:
                index.heads[8 * last + NEXT] = node
            last = node
            return node
        first, base = int(index.meta[POINTERS]), int(keys[begin])
        slope = fanout / (int(keys[end - 1]) - base) * MARGIN
        index.meta[POINTERS] += fanout
        index.lines[2 * node : 2 * node + 2] = slope, 0.0
        index.heads[8 * node : 8 * node + 8] = first, fanout, -1, base, -1, 0, 0, 0
        places = np.minimum(np.floor(slope * (keys[begin:end] - base)), fanout - 1.0)
        bounds = begin + np.searchsorted(places, np.arange(fanout + 1))
        ranges = [(0, fanout)]
        while ranges:  # pointers that share a child, in the order of their keys
            low, high = ranges.pop()
            if high - low == 1 or (high - low < fanout and fits(int(bounds[low]), int(bounds[high]))):
                index.pointers[first + low : first + high] = load(int(bounds[low]), int(bounds[high]))
            else:
                ranges += [((low + high) // 2, high), (low, (low + high) // 2)]
        return node

    def fits(begin: int, end: int) -> bool:
        """Whether a line is good enough for the keys [begin, end)."""
        if end - begin <= FEW_KEYS:
            return True
        if end - begin > MOST_KEYS:
            return False
        x, y = (keys[begin:end] - keys[begin]).astype(float), np.arange(end - begin, dtype=float)
        x -= x.mean()
        y -= y.mean()
        errors = np.abs(x * (x @ y / (x @ x)) - y) / 0.7
        return float(np.log2(1 + errors).mean()) <= GOOD_FIT

    index.meta[ROOT] = load(0, count)
    index.work[:] = 0
    return index

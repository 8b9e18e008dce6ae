"""Inserts into a learned index: into a gap where the line predicts one, or with a shift to the nearest gap."""

from labkit.indexes import btree
from labkit.indexes.kernels import FULL, kernel, rebound
from labkit.indexes.learned import layout as of
from labkit.indexes.learned.growth import make_room, outside
from labkit.indexes.learned.layout import (
    child_place,
    exponential_search,
    get,
    is_taken,
    mark,
    predicted_slot,
    scan,
)

__all__ = ["get", "get_many", "put", "run", "scan"]
USUAL_COST = 64
"""Slots that an insert may miss its place by, and shift, on average, before its leaf is split rather than grown"""
HIGHEST_COST = 2**16
"""Slots missed and shifted beyond what is usual, in all, at which a leaf is split before it is full"""
PATIENCE = 1000
"""Inserts outside of the root's range after which it is widened (as in ALEX)"""


@kernel
def next_taken(marks, slot, end, work):
    """The first taken slot of [slot, end), or `end`."""
    word, last = slot >> 6, (end - 1) >> 6
    bits = marks[word] & (-1 << (slot & 63))
    while bits == 0 and word < last:
        word += 1
        bits = marks[word]
        work[of.SCANNED] += 1
    if bits == 0:
        return end
    place = word << 6
    for width in (32, 16, 8, 4, 2, 1):
        if bits & ((1 << width) - 1) == 0:
            bits >>= width
            place += width
    return min(place, end)


@kernel
def scan_end(guess, end):
    """Where a scan for the next taken slot may end: the key will not go behind the guess."""
    return min(guess + 1, end)


@kernel
def free_slot(marks, slot, guess, end, bounded, work):
    """Where to insert before `slot`: there, or in the gap that begins there, as near as possible to the guess."""
    if guess <= slot or is_taken(marks, slot):
        return slot
    # ALEX looks for the end of the gap, however far it is
    return min(guess, next_taken(marks, slot, scan_end(guess, end) if bounded else end, work) - 1)


@kernel
def insert_with_shift(keys, values, marks, first, end, slot, key, value):
    """Insert before a taken slot, or at the end: shift the keys up to the nearest gap by one. Returns their number."""
    left, right = slot - 1, slot
    while True:
        if right < end and not is_taken(marks, right):
            for place in range(right, slot, -1):
                keys[place], values[place] = keys[place - 1], values[place - 1]
            keys[slot], values[slot] = key, value
            mark(marks, right)
            return right - slot
        if left >= first and not is_taken(marks, left):
            for place in range(left, slot - 1):
                keys[place], values[place] = keys[place + 1], values[place + 1]
            keys[slot - 1], values[slot - 1] = key, value
            mark(marks, left)
            return slot - 1 - left
        left -= 1
        right += 1


@kernel
def put(index, key, value):
    heads, keys, values, marks = index.heads, index.keys, index.values, index.marks
    while True:
        leaf, parent, pointer = index.meta[of.ROOT], -1, 0
        while heads[8 * leaf + of.COUNT] < 0:
            pointer = heads[8 * leaf + of.FIRST] + child_place(index, leaf, key)
            parent, leaf = leaf, index.pointers[pointer]
        head = 8 * leaf
        first, guess = heads[head + of.FIRST], predicted_slot(index, leaf, key)
        end = first + heads[head + of.ROOM]
        slot = exponential_search(keys, first, end, guess, key)
        if slot > first and keys[slot - 1] == key:
            values[slot - 1] = value
            return 0
        if 5 * heads[head + of.COUNT] + 5 <= 4 * heads[head + of.ROOM] and heads[head + of.COST] < HIGHEST_COST:
            break
        if make_room(index, leaf, parent, pointer) == FULL:
            return FULL
    heads[head + of.COST] += abs(guess - slot) - USUAL_COST
    slot = free_slot(marks, slot, guess, end, index.meta[of.BOUNDED], index.work)
    if slot == end or is_taken(marks, slot):
        shifted = insert_with_shift(keys, values, marks, first, end, slot, key, value)
        heads[head + of.COST] += shifted
        index.work[of.SHIFTED] += shifted
    else:
        values[slot] = value
        mark(marks, slot)
        keys[slot] = key
        while slot > first and not is_taken(marks, slot - 1):
            slot -= 1
            keys[slot] = key
    heads[head + of.COUNT] += 1
    is_append = key > heads[head + of.LARGEST]
    heads[head + of.APPENDED] += 1 if is_append else -9
    heads[head + of.LARGEST] = max(key, heads[head + of.LARGEST])
    if (is_append and heads[head + of.NEXT] < 0) or keys[first] == key:
        side = outside(index, key)
        index.meta[of.OUTSIDE] += abs(side)
        if side != 0 and index.meta[of.OUTSIDE] >= PATIENCE:
            make_room(index, leaf, parent, pointer)
    return 1


get_many, run = rebound(btree.get_many, globals()), rebound(btree.run, globals())

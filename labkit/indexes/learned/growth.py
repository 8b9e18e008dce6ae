"""How a learned index grows: leaves get more slots or are split, and a wider root is put above the root."""

from labkit.indexes.kernels import FULL, NO_KEY, kernel
from labkit.indexes.learned import layout as of
from labkit.indexes.learned.layout import child_place, is_taken, lay_out, leaf_of, room_for

MOST_ROOM = 2**20
"""Slots of the largest leaf (16 MiB of keys and values, as in ALEX)"""
FANOUT = 16
"""Pointers of an inner node that is not from the bulk load"""


@kernel
def outside(index, key):
    """1 for a key beyond the root's range, −1 for one below it, else 0."""
    root = index.meta[of.ROOT]
    place, offset = index.lines[2 * root] * (key - index.heads[8 * root + of.BASE]), index.lines[2 * root + 1]
    if index.heads[8 * root + of.COUNT] >= 0:
        return 0  # a leaf has no range
    return 1 if place >= index.heads[8 * root + of.ROOM] - offset else -1 if place < -offset else 0


@kernel
def make_room(index, leaf, parent, pointer):
    """Lay a leaf out in more slots, divide it, or widen the root. Returns FULL if the pools are too small."""
    heads, meta, head = index.heads, index.meta, 8 * leaf
    first, count, room = heads[head + of.FIRST], heads[head + of.COUNT], heads[head + of.ROOM]
    if (
        meta[of.SLOTS] + room_for(count, 0.6) + 128 > len(index.keys)
        or meta[of.NODES] + 2 > len(heads) // 8
        or meta[of.POINTERS] + FANOUT > len(index.pointers)
    ):
        return FULL
    # Only the first and the last leaf can give the keys of one side to a wider root: all others stay on the other side.
    side = outside(index, heads[head + of.LARGEST]) if heads[head + of.NEXT] < 0 else 0
    if side == 0 and outside(index, index.keys[first]) < 0 and leaf_of(index, 0) == leaf:
        side = -1
    lower, upper, boundary = leaf, -1, 0
    if side != 0 or heads[head + of.COST] > 0 or room >= MOST_ROOM:
        upper = meta[of.NODES]
        meta[of.NODES] += 1
        if side != 0:
            boundary = widen(index, leaf, upper, side)
            parent = meta[of.ROOT]
        else:
            parent, boundary = split(index, leaf, upper, parent, pointer)
        if side < 0:
            lower, upper = upper, leaf
    divide(index, leaf, parent, boundary, lower, upper)
    return 0


@kernel
def new_inner(index, child, base, slope, offset):
    """An inner node all of whose pointers lead to one child."""
    node, first = index.meta[of.NODES], index.meta[of.POINTERS]
    index.meta[of.NODES] += 1
    index.meta[of.POINTERS] += FANOUT
    index.heads[8 * node + of.FIRST], index.heads[8 * node + of.ROOM] = first, FANOUT
    index.heads[8 * node + of.COUNT], index.heads[8 * node + of.BASE] = -1, base
    index.lines[2 * node], index.lines[2 * node + 1] = slope, offset
    for place in range(first, first + FANOUT):
        index.pointers[place] = child
    return node


@kernel
def split(index, leaf, upper, parent, pointer):
    """Let the upper half of the pointers to a leaf lead to another. Returns their parent, and the first of them there.

    If there is only one pointer, it leads to a new inner node from now on.
    """
    low, high = pointer, pointer + 1
    if parent >= 0:
        start = index.heads[8 * parent + of.FIRST]
        while low > start and index.pointers[low - 1] == leaf:
            low -= 1
        while high < start + index.heads[8 * parent + of.ROOM] and index.pointers[high] == leaf:
            high += 1
    if high - low == 1:
        base = index.keys[index.heads[8 * leaf + of.FIRST]]
        slope = FANOUT / (index.heads[8 * leaf + of.LARGEST] - base) * of.MARGIN
        inner = new_inner(index, leaf, base, slope, 0.0)
        if parent < 0:
            index.meta[of.ROOT] = inner
        else:
            index.pointers[pointer] = inner
        parent, low = inner, index.heads[8 * inner + of.FIRST]
        high = low + FANOUT
    middle = (low + high) // 2
    for place in range(middle, high):
        index.pointers[place] = upper
    index.work[of.SPLIT] += 1
    return parent, middle - index.heads[8 * parent + of.FIRST]


@kernel
def widen(index, leaf, new, side):
    """Put a root above the root, with a range at least 16 times as wide. Returns its first pointer to the upper child.

    The old root is its first or last child, the leaf `new` all others. A key's child is decided by the sign of a
    difference of integers, so no rounding can send a key to where it is not.
    """
    root, first = index.meta[of.ROOT], index.heads[8 * leaf + of.FIRST]
    end, largest, slot = first + index.heads[8 * leaf + of.ROOM], index.heads[8 * leaf + of.LARGEST], first
    while slot < end and outside(index, index.keys[slot]) < max(0, side):
        slot += 1
    base = min(largest + 1, index.keys[slot]) if slot < end else largest + 1
    slope, room = index.lines[2 * root], index.heads[8 * root + of.ROOM]
    if side > 0 and slot > first:  # not beyond the end of the old range, so that none is left between the two
        old_end = index.heads[8 * root + of.BASE] + int((room - index.lines[2 * root + 1]) / slope)
        base = min(base, max(index.keys[slot - 1] + 1, old_end))
    # as wide as the old range for each pointer, or so that the farthest key is in the middle
    reach = largest - base if side > 0 else base - index.keys[first]
    slope = 1 / max(room / slope, 2 * reach / (FANOUT - 1))
    boundary = 1 if side > 0 else FANOUT - 1
    wider = new_inner(index, new, base, slope, float(boundary))
    index.pointers[index.heads[8 * wider + of.FIRST] + (0 if side > 0 else boundary)] = root
    index.meta[of.ROOT], index.meta[of.OUTSIDE] = wider, 0
    index.work[of.WIDENED] += 1
    return boundary


@kernel
def divide(index, leaf, parent, boundary, lower, upper):
    """Lay a leaf out again: keys that its parent sends to pointers before the boundary as `lower`, others as `upper`.

    Without an `upper` all keys stay.
    """
    heads, keys, head = index.heads, index.keys, 8 * leaf
    begin, count, next_leaf = heads[head + of.FIRST], heads[head + of.COUNT], heads[head + of.NEXT]
    end, appended = begin + heads[head + of.ROOM], heads[head + of.APPENDED] > 0
    middle, below = end, count
    if upper >= 0:
        middle, below = begin, 0
        while middle < end and keys[middle] < NO_KEY and child_place(index, parent, keys[middle]) < boundary:
            below += is_taken(index.marks, middle)
            middle += 1
        heads[8 * upper + of.NEXT], heads[8 * lower + of.NEXT] = next_leaf, upper
    else:
        index.work[of.GROWN] += 1
    for node in (lower, upper):
        if node >= 0:
            room = room_for(below, 0.6)
            # after appends the gaps are behind the keys, where the next ones will be
            spread = int(below / 0.8) if appended and (node == upper or upper < 0) else room
            lay_out(index, node, keys, index.values, index.marks, begin, middle, below, room, spread)
        begin, middle, below = middle, end, count - below

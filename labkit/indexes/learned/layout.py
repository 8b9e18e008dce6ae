"""What a learned index is made of: nodes with a line each, leaves with gaps, and their search.

Inner nodes divide their range of keys evenly among a power of two of pointers; several pointers may lead to one child.
A leaf's gaps hold a copy of the next key, so that a search over all slots never meets an order that is broken.
"""

import math
from typing import Any, NamedTuple

from labkit.indexes.kernels import MISSING, NO_KEY, inlined, kernel

FIRST, ROOM, COUNT, BASE, NEXT, COST, APPENDED, LARGEST = range(8)
"""Places in a node's head: first slot or pointer; number of slots or pointers; number of keys, or −1 for inner nodes;
the key that its line counts from; the next leaf; shifts and errors beyond what is usual; appends minus nine times other
inserts; the largest key"""
ROOT, NODES, POINTERS, SLOTS, BOUNDED, OUTSIDE = range(6)
"""Places in `meta`: the root; nodes, pointers and slots in use; whether the scan for a free slot has a bound; and
inserts outside of the root's range"""
WORK = (
    "keys laid out",
    "keys moved by shifts",
    "bitmap words scanned",
    "leaves grown",
    "leaves split",
    "roots widened",
)
LAID_OUT, SHIFTED, SCANNED, GROWN, SPLIT, WIDENED = range(6)
MARGIN = 1 - 1e-9
"""Keeps the largest key of a range within it, however its place is rounded"""


class Learned(NamedTuple):
    heads: Any
    """int64 (N * 8,): the fields above"""
    lines: Any
    """float64 (N * 2,): slope, and the place of the base"""
    pointers: Any
    keys: Any
    values: Any
    marks: Any
    """int64 (S / 64,): a bit for each slot that is taken"""
    meta: Any
    work: Any


@kernel
def child_place(index, node, key):
    """Which pointer of an inner node leads to a key. Loads, splits and look-ups must all compute it in this way."""
    offset, room = index.lines[2 * node + 1], index.heads[8 * node + ROOM]
    place = index.lines[2 * node] * (key - index.heads[8 * node + BASE])
    # limited before it becomes an integer: it may be beyond 64 bits
    return int(math.floor(min(max(place, -offset), room - 1.0 - offset)) + offset)


@kernel
def leaf_of(index, key):
    node = index.meta[ROOT]
    while index.heads[8 * node + COUNT] < 0:
        node = index.pointers[index.heads[8 * node + FIRST] + child_place(index, node, key)]
    return node


@kernel
def predicted_slot(index, leaf, key):
    place = index.lines[2 * leaf] * (key - index.heads[8 * leaf + BASE]) + index.lines[2 * leaf + 1]
    last = index.heads[8 * leaf + ROOM] - 1.0
    return index.heads[8 * leaf + FIRST] + int(min(max(place, 0.0), last))


@kernel
def exponential_search(keys, first, end, guess, key):
    """The first of the slots [first, end) whose key is larger, or `end`: steps from the guess double, then halve."""
    step = 1
    if keys[guess] > key:
        while guess - step >= first and keys[guess - step] > key:
            step *= 2
        low, high = max(guess - step, first), guess - step // 2
    else:
        while guess + step < end and keys[guess + step] <= key:
            step *= 2
        low, high = guess + step // 2, min(guess + step, end)
    while low < high:
        middle = (low + high) // 2
        if keys[middle] > key:
            high = middle
        else:
            low = middle + 1
    return low


@inlined
def get(index, key):
    leaf = leaf_of(index, key)
    first = index.heads[8 * leaf + FIRST]
    end = first + index.heads[8 * leaf + ROOM]
    slot = exponential_search(index.keys, first, end, predicted_slot(index, leaf, key), key) - 1
    return index.values[slot] if slot >= first and index.keys[slot] == key else MISSING


@kernel
def is_taken(marks, slot):
    return (marks[slot >> 6] >> (slot & 63)) & 1


@kernel
def mark(marks, slot):
    bit = slot & 63
    marks[slot >> 6] |= 1 << bit if bit < 63 else -1 << 63  # the sign


@kernel
def scan(index, key, count, found):
    """Write the values of up to `count` keys from `key` on into `found`; return their number."""
    leaf, number = leaf_of(index, key), 0
    first = index.heads[8 * leaf + FIRST]
    end = first + index.heads[8 * leaf + ROOM]
    slot = exponential_search(index.keys, first, end, predicted_slot(index, leaf, key), key - 1)
    while True:
        while slot < end and number < count:
            if is_taken(index.marks, slot):
                found[number] = index.values[slot]
                number += 1
            slot += 1
        leaf = index.heads[8 * leaf + NEXT]
        if leaf < 0 or number == count:
            return number
        slot = index.heads[8 * leaf + FIRST]
        end = slot + index.heads[8 * leaf + ROOM]


@kernel
def room_for(count, share):
    """Slots, in whole words of the bitmap, of which `count` keys take a share."""
    return (int(count / share) // 64 + 1) * 64


@kernel
def lay_out(index, leaf, keys, values, marks, begin, end, count, room, spread):
    """Write a leaf into new slots: the `count` marked keys of [begin, end), on a line over `spread` of `room` slots."""
    first, base, largest, mean_x, number = index.meta[SLOTS], 0, -1, 0.0, 0
    for slot in range(begin, end):
        if is_taken(marks, slot):
            if number == 0:
                base = keys[slot]
            largest = keys[slot]
            mean_x += largest - base
            number += 1
    mean_x, mean_y, products, squares, number = mean_x / max(count, 1), (count - 1) / 2, 0.0, 0.0, 0
    for slot in range(begin, end):
        if is_taken(marks, slot):
            x = (keys[slot] - base) - mean_x
            products += x * (number - mean_y)
            squares += x * x
            number += 1
    slope = products / squares * spread / count if squares > 0 else 0.0
    index.lines[2 * leaf], index.lines[2 * leaf + 1] = slope, mean_y * spread / max(count, 1) - slope * mean_x
    head = 8 * leaf
    index.heads[head + FIRST], index.heads[head + ROOM], index.heads[head + COUNT] = first, room, count
    index.heads[head + BASE], index.heads[head + LARGEST] = base, largest
    index.heads[head + COST] = index.heads[head + APPENDED] = 0
    index.meta[SLOTS] += room
    for word in range(first >> 6, (first + room) >> 6):
        index.marks[word] = 0
    next_free, number = first, 0
    for slot in range(begin, end):
        if is_taken(marks, slot):
            # not before the key before it, and with enough slots left for the keys after it
            place = min(max(predicted_slot(index, leaf, keys[slot]), next_free), first + room - count + number)
            for gap in range(next_free, place + 1):
                index.keys[gap] = keys[slot]
            index.values[place] = values[slot]
            mark(index.marks, place)
            next_free = place + 1
            number += 1
    for gap in range(next_free, first + room):
        index.keys[gap] = NO_KEY
    index.work[LAID_OUT] += count

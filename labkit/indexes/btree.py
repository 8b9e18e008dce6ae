"""A B+-tree with 64 slots a node. Full nodes are split on the way down, so that no insert has to go back up.

Slots behind a node's last key hold NO_KEY, so that a search always runs over all slots and needs no count.
"""

from typing import Any, NamedTuple

import numpy as np

from labkit.indexes.kernels import FULL, GET, MISSING, NO_KEY, PUT, inlined, kernel

SLOTS, LOADED = 64, 48
"""Slots of a node, and how many are taken after a bulk load"""
ROOT, HEIGHT, USED = range(3)
"""Places in `meta`: the root, the levels above the leaves, and the nodes in use"""
WORK = ("keys moved by shifts", "nodes split")
SHIFTED, SPLIT = range(2)


class BTree(NamedTuple):
    keys: Any
    """int64 (N * 64,): keys of leaves; in inner nodes the smallest key of each child but the first"""
    links: Any
    """int64 (N * 64,): values of leaves, children of inner nodes"""
    counts: Any
    """int64 (N,): keys of leaves, children of inner nodes"""
    nexts: Any
    """int64 (N,): the next leaf, or -1"""
    meta: Any
    work: Any


def build(keys: np.ndarray, values: np.ndarray, more: int) -> BTree:
    """Load sorted keys; `more` keys will find room."""
    pool = len(keys) // (LOADED - 5) + more // (SLOTS // 2 - 3) + 64
    tree = BTree(
        np.full(pool * SLOTS, NO_KEY, dtype=np.int64),
        np.zeros(pool * SLOTS, dtype=np.int64),
        np.zeros(pool, dtype=np.int64),
        np.full(pool, -1, dtype=np.int64),
        np.zeros(3, dtype=np.int64),
        np.zeros(len(WORK), dtype=np.int64),
    )
    first, below, smallest = 0, values, keys
    while True:
        nodes = max(1, -(-len(below) // LOADED))
        places = (first + np.arange(len(below)) // LOADED) * SLOTS + np.arange(len(below)) % LOADED
        tree.links[places] = below
        if first == 0:
            tree.keys[places] = smallest
            tree.nexts[: nodes - 1] = np.arange(1, nodes)
        else:
            is_later = np.arange(len(below)) % LOADED > 0
            tree.keys[places[is_later] - 1] = smallest[is_later]
        tree.counts[first : first + nodes] = np.bincount(np.arange(len(below)) // LOADED, minlength=nodes)
        if nodes == 1:
            tree.meta[ROOT], tree.meta[USED] = first, first + 1
            return tree
        below, smallest = first + np.arange(nodes), smallest[::LOADED]
        first += nodes
        tree.meta[HEIGHT] += 1


@kernel
def lower_bound(keys, node, key):
    """The first slot of a node whose key is not smaller; the last slot if there is none."""
    slot, step = node * SLOTS, SLOTS // 2
    while step > 0:
        slot += step * (keys[slot + step - 1] < key)  # without a branch, which would be mispredicted half of the time
        step >>= 1
    return slot


@kernel
def leaf_of(tree, key):
    node = tree.meta[ROOT]
    for _ in range(tree.meta[HEIGHT]):
        node = tree.links[lower_bound(tree.keys, node, key + 1)]
    return node


@inlined
def get(tree, key):
    slot = lower_bound(tree.keys, leaf_of(tree, key), key)
    return tree.links[slot] if tree.keys[slot] == key else MISSING


@kernel
def scan(tree, key, count, found):
    """Write the values of up to `count` keys from `key` on into `found`; return their number."""
    node, number = leaf_of(tree, key), 0
    slot = lower_bound(tree.keys, node, key)
    while node >= 0 and number < count:
        end = node * SLOTS + tree.counts[node]
        while slot < end and number < count:
            if tree.keys[slot] >= key:  # the last slot of a full leaf may be smaller
                found[number] = tree.links[slot]
                number += 1
            slot += 1
        node = tree.nexts[node]
        slot = node * SLOTS
    return number


@kernel
def put(tree, key, value):
    keys, links, counts, meta = tree.keys, tree.links, tree.counts, tree.meta
    if meta[USED] + meta[HEIGHT] + 2 > len(counts):
        return FULL
    node = meta[ROOT]
    if counts[node] == SLOTS:
        root = new_node(tree)
        links[root * SLOTS], counts[root], meta[ROOT] = node, 1, root
        meta[HEIGHT] += 1
        split(tree, root, root * SLOTS, meta[HEIGHT] == 1)
        node = root
    for level in range(meta[HEIGHT], 0, -1):
        slot = lower_bound(keys, node, key + 1)
        if counts[links[slot]] == SLOTS:
            split(tree, node, slot, level == 1)
            if keys[slot] <= key:
                slot += 1
        node = links[slot]
    slot, end = lower_bound(keys, node, key), node * SLOTS + counts[node]
    if keys[slot] == key:
        links[slot] = value
        return 0
    for place in range(end, slot, -1):
        keys[place], links[place] = keys[place - 1], links[place - 1]
    keys[slot], links[slot] = key, value
    counts[node] += 1
    tree.work[SHIFTED] += end - slot
    return 1


@kernel
def new_node(tree):
    node = tree.meta[USED]
    tree.meta[USED] += 1
    tree.counts[node], tree.nexts[node] = 0, -1
    for slot in range(node * SLOTS, node * SLOTS + SLOTS):
        tree.keys[slot] = NO_KEY
    return node


@kernel
def split(tree, parent, slot, is_leaf):
    """Move the upper half of the full child that a parent's slot links to into a new node."""
    keys, links, counts = tree.keys, tree.links, tree.counts
    left, right, half = links[slot], new_node(tree), SLOTS // 2
    middle, first = left * SLOTS + half, right * SLOTS
    for place in range(half):
        keys[first + place], links[first + place] = keys[middle + place], links[middle + place]
        keys[middle + place] = NO_KEY
    counts[left], counts[right] = half, half
    if is_leaf:
        smallest = keys[first]
        tree.nexts[right], tree.nexts[left] = tree.nexts[left], right
    else:  # of the children on the right, the first needs no key any more
        smallest = keys[middle - 1]
        keys[middle - 1] = NO_KEY
    for place in range(parent * SLOTS + counts[parent], slot + 1, -1):
        keys[place - 1], links[place] = keys[place - 2], links[place - 1]
    keys[slot], links[slot + 1] = smallest, right
    counts[parent] += 1
    tree.work[SPLIT] += 1


@kernel
def get_many(index, keys, found):
    for place in range(len(keys)):
        found[place] = get(index, keys[place])


@kernel
def run(index, kinds, keys, arguments, found, values, start):
    """Answer requests from number `start` on; return the number of the first for which the pool is full, or of all."""
    for request in range(start, len(keys)):
        if kinds[request] == GET:
            found[request] = get(index, keys[request])
        elif kinds[request] == PUT:
            state = put(index, keys[request], arguments[request])
            if state == FULL:
                return request
            found[request] = state
        else:
            total = 0
            for place in range(scan(index, keys[request], arguments[request], values)):
                total += values[place]
            found[request] = total
    return len(keys)

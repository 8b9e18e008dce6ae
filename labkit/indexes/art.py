"""An adaptive radix tree (Leis et al., ICDE 2013): inner nodes for up to 4, 16, 48 or 256 children, and prefixes.

Inner nodes are rows of words in one array. Word 0 refers to the root: 0 is nothing, a positive number is the first word
of an inner node, a negative one a leaf. A node's words are
    its kind (4, 16, 48 or 256) and, shifted by 16 bits, its number of children
    the number of bytes before the one that it branches on and, shifted by 8 bits, these bytes
    kinds 4 and 16: sorted bytes, four a word; kind 48: for each byte the number of its child from 1, eight a word
    the children
"""

from typing import Any, NamedTuple

import numpy as np

from labkit.indexes import btree
from labkit.indexes.kernels import FULL, MISSING, enlarged, inlined, kernel, rebound

WORDS, LEAVES = range(2)
"""Places in `meta`: the words and leaves in use"""
WORK = ("nodes grown", "nodes split")
GROWN, SPLIT = range(2)
MOST_WORDS = 258 + 7
"""Words that one insert may take"""


class RadixTree(NamedTuple):
    words: Any
    leaves: Any
    """int64 (2 L,): key and value of each leaf"""
    meta: Any
    work: Any


def build(keys: np.ndarray, values: np.ndarray, more: int) -> RadixTree:
    """Insert sorted keys; `more` keys will probably find room."""
    pool = len(keys) + more + 64
    tree = RadixTree(
        np.zeros(6 * pool + 4 * MOST_WORDS, dtype=np.int64),
        np.zeros(2 * pool, dtype=np.int64),
        np.array([1, 0], dtype=np.int64),
        np.zeros(len(WORK), dtype=np.int64),
    )
    done = 0
    while (done := put_many(tree, keys, values, done)) < len(keys):
        tree = enlarged(tree)
    tree.work[:] = 0
    return tree


@kernel
def put_many(tree, keys, values, start):
    for place in range(start, len(keys)):
        if put(tree, keys[place], values[place]) == FULL:
            return place
    return len(keys)


@kernel
def byte_of(key, depth):
    return (key >> (56 - 8 * depth)) & 255


@kernel
def prefix_of(key, depth):
    return key >> 1 >> (63 - 8 * depth)  # a shift by 64 bits is undefined


@kernel
def first_child(kind):
    """The words of a node before its children."""
    return 3 if kind == 4 else 6 if kind == 16 else 34 if kind == 48 else 2


@kernel
def small_byte(words, node, place):
    """A byte of a node of kind 4 or 16."""
    return (words[node + 2 + (place >> 2)] >> (8 * (place & 3))) & 255


@kernel
def set_small_byte(words, node, place, byte):
    word, shift = node + 2 + (place >> 2), 8 * (place & 3)
    words[word] = words[word] & ~(255 << shift) | byte << shift


@kernel
def child_at(words, node, byte):
    """The word that refers to the child of a byte; 0 if there is none."""
    kind, count = words[node] & 0xFFFF, words[node] >> 16
    if kind <= 16:
        for place in range(count):
            if small_byte(words, node, place) == byte:
                return node + first_child(kind) + place
        return 0
    if kind == 48:
        place = (words[node + 2 + (byte >> 3)] >> (8 * (byte & 7))) & 255
        return node + 33 + place if place else 0
    return node + 2 + byte if words[node + 2 + byte] else 0


@inlined
def get(tree, key):
    node = tree.words[0]
    while node > 0:
        at = child_at(tree.words, node, byte_of(key, tree.words[node + 1] & 255))
        if at == 0:
            return MISSING
        node = tree.words[at]
    # the bytes that were skipped are compared here, with the whole key
    leaf = 2 * (-node - 1)
    return tree.leaves[leaf + 1] if node < 0 and tree.leaves[leaf] == key else MISSING


@kernel
def put(tree, key, value):
    words, leaves, meta = tree.words, tree.leaves, tree.meta
    if meta[WORDS] + MOST_WORDS > len(words) or 2 * meta[LEAVES] + 2 > len(leaves):
        return FULL
    at = 0
    while words[at] != 0:
        node = words[at]
        if node < 0:
            other, depth = leaves[2 * (-node - 1)], 8
        else:
            depth = words[node + 1] & 255
            other = words[node + 1] >> 8 << (64 - 8 * depth) if depth else 0
        if node < 0 and other == key:
            leaves[2 * (-node - 1) + 1] = value
            return 0
        shared = 0
        while shared < depth and byte_of(key, shared) == byte_of(other, shared):
            shared += 1
        if shared < depth:  # branch above this node
            above = new_node(tree, 4, prefix_of(key, shared) << 8 | shared)
            words[at] = above
            add_child(words, above, byte_of(other, shared), node)
            add_child(words, above, byte_of(key, shared), new_leaf(tree, key, value))
            tree.work[SPLIT] += 1
            return 1
        child = child_at(words, node, byte_of(key, depth))
        if child == 0:
            if words[node] >> 16 == words[node] & 0xFFFF:
                node = words[at] = grown(tree, node)
            add_child(words, node, byte_of(key, depth), new_leaf(tree, key, value))
            return 1
        at = child
    words[at] = new_leaf(tree, key, value)
    return 1


@kernel
def new_leaf(tree, key, value):
    leaf = tree.meta[LEAVES]
    tree.meta[LEAVES] += 1
    tree.leaves[2 * leaf], tree.leaves[2 * leaf + 1] = key, value
    return -leaf - 1


@kernel
def new_node(tree, kind, branch):
    node = tree.meta[WORDS]
    tree.meta[WORDS] += first_child(kind) + kind
    tree.words[node], tree.words[node + 1] = kind, branch
    return node


@kernel
def add_child(words, node, byte, child):
    kind, count = words[node] & 0xFFFF, words[node] >> 16
    first = node + first_child(kind)
    if kind <= 16:
        place = count
        while place > 0 and small_byte(words, node, place - 1) > byte:
            set_small_byte(words, node, place, small_byte(words, node, place - 1))
            words[first + place] = words[first + place - 1]
            place -= 1
        set_small_byte(words, node, place, byte)
        words[first + place] = child
    elif kind == 48:
        words[node + 2 + (byte >> 3)] |= (count + 1) << (8 * (byte & 7))
        words[first + count] = child
    else:
        words[first + byte] = child
    words[node] += 1 << 16


@kernel
def grown(tree, node):
    """A copy of a full node with the next larger kind."""
    words = tree.words
    kind = words[node] & 0xFFFF
    larger = new_node(tree, 16 if kind == 4 else 48 if kind == 16 else 256, words[node + 1])
    if kind == 48:
        for byte in range(256):
            child = child_at(words, node, byte)
            if child:
                add_child(words, larger, byte, words[child])
    else:
        for place in range(kind):
            add_child(words, larger, small_byte(words, node, place), words[node + first_child(kind) + place])
    tree.work[GROWN] += 1
    return larger


@kernel
def first_byte(words, node, key):
    """The first byte at which a node may have keys that are not smaller than `key`."""
    depth = words[node + 1] & 255
    own, asked = words[node + 1] >> 8, prefix_of(key, depth)
    return byte_of(key, depth) if own == asked else 0 if own > asked else 256


@kernel
def next_child(words, node, byte):
    """The word of the first child from a byte on, and the byte after its own; (0, 256) if there is none."""
    kind, count = words[node] & 0xFFFF, words[node] >> 16
    if kind <= 16:
        for place in range(count):
            own = small_byte(words, node, place)
            if own >= byte:
                return node + first_child(kind) + place, own + 1
        return 0, 256
    while byte < 256:
        at = child_at(words, node, byte)
        byte += 1
        if at:
            return at, byte
    return 0, 256


@kernel
def scan(tree, key, count, found):
    """Write the values of up to `count` keys from `key` on into `found`; return their number."""
    words, leaves, number, level = tree.words, tree.leaves, 0, 0
    nodes, bytes = np.zeros(9, np.int64), np.zeros(9, np.int64)  # the way down, as no kernel may call itself
    reference = words[0]
    while number < count:
        if reference > 0:
            nodes[level], bytes[level] = reference, first_byte(words, reference, key)
            level += 1
        elif reference < 0 and leaves[2 * (-reference - 1)] >= key:
            found[number] = leaves[2 * (-reference - 1) + 1]
            number += 1
        reference = 0
        while level > 0 and reference == 0:
            at, bytes[level - 1] = next_child(words, nodes[level - 1], bytes[level - 1])
            if at:
                reference = words[at]
            else:
                level -= 1
        if reference == 0:
            return number
    return number


get_many, run = rebound(btree.get_many, globals()), rebound(btree.run, globals())

"""The rows that a cache holds, against the caches of a textbook."""

from collections import OrderedDict

import numpy as np
import pytest

from labkit.placement.cached import CacheIndex


def textbook_lru(batches, slots):
    """Misses of each batch, and what is held at the end: those that are there first, then the others."""
    held, missed = OrderedDict(), []
    for rows in batches:
        hits, misses = [row for row in rows if row in held], [row for row in rows if row not in held]
        for row in hits:
            held.move_to_end(row)
        for row in misses:
            if len(held) == slots:
                held.popitem(last=False)
            held[row] = None
        missed.append(len(misses))
    return missed, set(held)


def textbook_lfu(batches, slots):
    held, missed, now = {}, [], 0
    for number, rows in enumerate(batches):
        hits, misses = [row for row in rows if row in held], [row for row in rows if row not in held]
        for row in hits:
            held[row], now = (held[row][0] + 1, now, number), now + 1
        for row in misses:
            if len(held) == slots:
                del held[min((row for row in held if held[row][2] < number), key=lambda row: held[row][:2])]
            held[row], now = (1, now, number), now + 1
        missed.append(len(misses))
    return missed, set(held)


@pytest.mark.parametrize("policy, textbook", [("lru", textbook_lru), ("lfu", textbook_lfu)])
@pytest.mark.parametrize("rows, slots, size", [(60, 12, 1), (300, 40, 25), (300, 299, 30), (2000, 500, 120)])
def test_a_cache_evicts_as_the_textbook_does(policy, textbook, rows, slots, size):
    rng = np.random.default_rng(rows + size)
    batches = [np.unique(rng.zipf(1.2, size) % rows) for _ in range(400)]
    index = CacheIndex(rows, slots, policy)
    missed = [index.look(batch).missed for batch in batches]
    assert (missed, set(np.flatnonzero(index.slots(np.arange(rows)) >= 0))) == textbook(batches, slots)


def test_what_comes_in_and_goes_is_told_so_that_the_values_can_follow():
    rng, index, behind, fast = np.random.default_rng(3), CacheIndex(200, 30, "lru"), np.arange(200) * 10, np.zeros(30)
    for _ in range(200):
        batch = np.unique(rng.integers(0, 200, 12))
        look = index.look(batch)
        behind[look.evicted] = fast[look.evicted_from]
        fast[look.fetched_into] = behind[look.fetched]
        assert np.array_equal(index.rows(index.slots(batch)), batch)
        assert np.array_equal(fast[index.slots(batch)], behind[batch])  # of no other row, ever
        fast[index.slots(batch)] += 1
        behind[batch] += 1  # as if written through, so that both can be compared


def test_rows_of_batches_under_way_stay_and_the_rest_finds_no_slot():
    index = CacheIndex(100, 10, "lru")
    first = index.look(np.arange(8))
    second = index.look(np.arange(50, 60), protected=first.number)
    assert second.missed == 10 and len(second.fetched) == 2 and not len(second.evicted)
    assert (index.slots(np.arange(8)) >= 0).all() and (index.slots(np.arange(52, 60)) < 0).all()

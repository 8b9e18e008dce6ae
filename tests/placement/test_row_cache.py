"""Which rows a cache holds, against the textbook's caches; its hit rates, against the sum of probabilities."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pytest

from labkit.placement.cached import CacheIndex
from labkit.placement.hit_rate_table import expected_hit_rate, hit_rates, simulate_hit_rate, zipf_bound


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


def test_the_hit_rate_of_a_large_cache_is_one_less_each_row_once():
    assert simulate_hit_rate([np.array([1, 1, 2]), np.array([2, 2, 7])], 10, 10) == pytest.approx(1 - 3 / 6)


def test_the_heuristic_by_hand():
    # E 4, BL 2: U = 4 (1 - (3/4)^2) = 1.75; with room for both, 1 - 1.75/2; with X = 1, 1 - (1 + 1 * 3/4) / 2
    assert expected_hit_rate(4, 2, 4) == pytest.approx(0.125)
    assert expected_hit_rate(4, 2, 1) == pytest.approx(0.125)
    assert expected_hit_rate(100, 50, 10) == pytest.approx(1 - (10 + 40 * 90 / 100) / 50)


def test_single_lookups_come_near_the_bound_and_never_pass_it():
    frame = hit_rates([0.0, 1.1], [0.1, 0.5], num_rows=400, lookups=1, batches=4000).set_index(
        ["zipf_exponent", "cache_share", "policy", "source"]
    )["hit_rate"]
    for exponent in (0.0, 1.1):
        for share in (0.1, 0.5):
            bound = zipf_bound(400, exponent, round(400 * share))
            lru, lfu = (frame[exponent, share, policy, "simulated"] for policy in ("lru", "lfu"))
            # of 4000 draws the rate varies by sqrt(1/4 / 4000) = 0.008; four times that
            assert max(lru, lfu) < bound + 0.032
            assert lfu > (bound - 0.08 if exponent else bound - 0.032)
            assert lru > bound - 0.2
    assert frame[1.1, 0.1, "lfu", "simulated"] > frame[1.1, 0.1, "lru", "simulated"]
    assert set(frame.index.get_level_values("source")) == {"simulated", "bound", "heuristic"}

"""Indexes against a dictionary and a sorted list: distributions, orders of insertion, any requests."""

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st
from sortedcontainers import SortedDict

from labkit import UserError, indexes

KINDS = tuple(indexes.KINDS)
TOP = indexes.KEY_END - 1
# close keys, far keys, both ends, and neighbours of powers of two, where rounding could send a key to the wrong child
KEYS = st.one_of(
    st.integers(0, 300),
    st.integers(0, TOP),
    st.integers(TOP - 300, TOP),
    st.builds(lambda power, add: min(2**power + add, TOP), st.integers(0, 61), st.integers(0, 3)),
)
REQUESTS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, st.integers(-1000, 1000)),
        st.tuples(st.just("get"), KEYS, st.just(0)),
        st.tuples(st.just("scan"), KEYS, st.integers(1, 40)),
    ),
    max_size=60,
)
ENDS = [("get", 7, 0), ("put", TOP, 5), ("put", 0, 6), ("put", 0, 9), ("scan", 0, 9)]
ORDERS = {
    "ascending": lambda keys, random: keys,
    "descending": lambda keys, random: keys[::-1],
    "shuffled": lambda keys, random: random.permutation(keys),
    "from both ends": lambda keys, random: np.stack(
        [keys[: len(keys) // 2], keys[: -len(keys) // 2 - 1 : -1]], 1
    ).ravel(),
    "from the middle": lambda keys, random: keys[
        np.argsort(np.abs(np.arange(len(keys)) - len(keys) / 2), kind="stable")
    ],
    "blocks": lambda keys, random: keys.reshape(50, -1)[random.permutation(50)].ravel(),
}


def check(index, truth: SortedDict) -> None:
    """All values are there, in the order of the keys, and no other key is."""
    keys = np.array([*truth], np.int64)
    assert index.get_many(keys).tolist() == [*truth.values()]
    assert index.scan(0, len(truth) + 1) == [*truth.values()]
    others = np.setdiff1d(np.clip(np.concatenate([keys - 1, keys + 1]), 0, TOP), keys)
    assert (index.get_many(others) == indexes.MISSING).all()


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None)
@given(st.sets(KEYS, max_size=200), REQUESTS)
@example(set(), ENDS)
@example({7}, ENDS)
def test_any_requests_are_answered_as_by_a_sorted_dictionary(kind, loaded, requests):
    truth = SortedDict((key, place) for place, key in enumerate(sorted(loaded)))
    index = indexes.Index(kind, np.array([*truth], np.int64), more=0)
    for what, key, argument in requests:
        if what == "put":
            assert index.put(key, argument) == (key not in truth)
            truth[key] = argument
        elif what == "get":
            assert index.get(key) == truth.get(key)
        else:
            start = truth.bisect_left(key)
            assert index.scan(key, argument) == [*truth.values()[start : start + argument]]
    check(index, truth)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("distribution", indexes.DISTRIBUTIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_keys_of_every_distribution_are_inserted_in_any_order(kind, distribution, order):
    """A sixth of the keys is loaded: the lowest, the highest or every sixth, so that inserts are outside, too."""
    keys, random = indexes.make_keys(distribution, 6000), np.random.default_rng(0)
    for is_loaded in (np.arange(6000) < 1000, np.arange(6000) >= 5000, np.arange(6000) % 6 == 0):
        values = random.integers(0, 10**9, 6000)
        truth = SortedDict(zip(keys.tolist(), values.tolist(), strict=True))
        index = indexes.Index(kind, keys[is_loaded], values[is_loaded], more=0)
        new = ORDERS[order](keys[~is_loaded], random)
        kinds, arguments = np.full(5000, 1, np.uint8), np.array([truth[key] for key in new.tolist()])
        assert (index.run(indexes.Requests(keys[is_loaded], kinds, new, arguments)) == 1).all()
        check(index, truth)


@pytest.mark.parametrize("distribution", indexes.DISTRIBUTIONS)
def test_a_learned_index_that_grows_by_thousands_of_keys_outside_of_its_range_loses_none(distribution):
    """Wider roots, splits and leaves that grow: each is counted, so the keys went through all of them."""
    keys, random = indexes.make_keys(distribution, 30_000), np.random.default_rng(1)
    middle = keys[14_000:16_000]
    index = indexes.Index("learned", middle, more=0)
    truth = SortedDict((key, place) for place, key in enumerate(middle.tolist()))
    outer = np.concatenate([keys[:14_000][::-1], keys[16_000:]])
    for part in (outer, random.permutation(outer)):  # the second time, values are replaced
        values = random.integers(0, 10**9, len(part))
        index.run(indexes.Requests(middle, np.full(len(part), 1, np.uint8), part, values))
        truth |= dict(zip(part.tolist(), values.tolist(), strict=True))
    check(index, truth)
    assert index.work["roots widened"] >= 2 and index.work["leaves grown"] and index.work["keys moved by shifts"]


def test_a_bounded_search_for_a_free_slot_puts_each_key_where_the_unbounded_one_does():
    requests = indexes.make_requests(indexes.Workload("uniform", 5000, "append", 20_000))
    pair = [indexes.Index(kind, requests.loaded, more=20_000) for kind in ("learned", "learned-bounded")]
    for index in pair:
        index.run(requests)
    for name in ("keys", "values", "marks", "heads"):
        assert (getattr(pair[0].arrays, name) == getattr(pair[1].arrays, name)).all()
    scanned = [index.work["bitmap words scanned"] for index in pair]
    assert scanned[0] > 100 * scanned[1]


def test_pools_that_are_full_are_enlarged_and_the_requests_go_on():
    requests = indexes.make_requests(indexes.Workload("zipf", 50, "mixed:90", 30_000))
    for kind in KINDS:
        small, large = (indexes.Index(kind, requests.loaded, more=more) for more in (0, 30_000))
        assert (small.run(requests) == large.run(requests)).all() and len(small.arrays[0]) != len(large.arrays[0])


@pytest.mark.parametrize("kind", KINDS)
def test_the_replay_equals_the_compiled_index_in_every_answer_and_every_array(kind):
    for pattern in ("reads", "mixed:50", "append:80", "scan"):
        requests = indexes.make_requests(indexes.Workload("lognormal", 3000, pattern, 1500))
        compiled, followed = (indexes.Index(kind, requests.loaded, more=0) for _ in range(2))
        log = indexes.replay(followed, requests)
        assert (log.found == compiled.run(requests)).all()
        assert all((one == other).all() for one, other in zip(compiled.arrays, followed.arrays, strict=True))
        assert log.starts[-1] == len(log.lines) > 0


def test_a_function_of_ones_own_takes_the_place_of_a_kernel_in_the_replay():
    requests = indexes.make_requests(indexes.Workload("uniform", 3000, "reads", 200))
    index = indexes.Index("learned", requests.loaded)

    def linear(keys, first, end, guess, key):
        while guess >= first and keys[guess] > key:
            guess -= 1
        while guess < end and keys[guess] <= key:
            guess += 1
        return guess

    usual, own = (indexes.replay(index, requests, swaps) for swaps in ({}, {"exponential_search": linear}))
    assert (usual.found == own.found).all() and own.accesses != usual.accesses


def test_misses_of_the_replay_are_those_of_a_cache_that_replaces_the_least_recently_used_line():
    assert indexes.lru_misses([1, 2, 1, 3, 2, 1], 2).tolist() == [True, True, False, True, True, True]
    lines = np.random.default_rng(0).integers(0, 40, 4000).tolist()
    stack, missed = [], []
    for line in lines:
        missed.append(line not in stack[-16:])
        stack = [each for each in stack if each != line] + [line]
    assert indexes.lru_misses(lines, 16).tolist() == missed


def test_a_learned_index_touches_half_of_the_lines_of_a_tree_and_misses_less():
    """10^6 uniform keys; the replay is exact, so these are no measurements."""
    requests = indexes.make_requests(indexes.Workload("uniform", 10**6, "reads", 4000))
    tree, learned = (indexes.replay(indexes.Index(kind, requests.loaded), requests) for kind in ("btree", "learned"))
    assert learned.lines_touched <= 0.5 * tree.lines_touched
    assert learned.misses(2**21) <= 0.8 * tree.misses(2**21)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ([3.0, float("nan")], "key number 1 is nan"),
        ([3, 2**62], "key number 1 is 4611686018427387904"),
        ([-1, 3], "key number 0 is -1"),
        ([1, 2.5], "key number 1 is 2.5"),
        ([3, 5, 5], "key number 2 is 5 again"),
        ([3, 7, 5], "key number 2 is 5, after 7"),
        (["a"], "give one row of whole numbers"),
        ([[1, 2]], "give one row of whole numbers"),
    ],
)
def test_keys_that_an_index_cannot_hold_are_refused_by_their_place(keys, words):
    with pytest.raises(UserError, match=words) as refused:
        indexes.Index("btree", keys)
    assert refused.value.field == "keys"


@pytest.mark.parametrize(
    ("field", "settings"),
    [
        ("keys", {"keys": "gaussian"}),
        ("workload", {"pattern": "mixed:101"}),
        ("workload", {"pattern": "writes"}),
        ("n", {"n": 0}),
        ("requests", {"requests": 10**9}),
    ],
)
def test_a_workload_that_cannot_be_made_is_refused(field, settings):
    with pytest.raises(UserError) as refused:
        indexes.Workload(**settings)
    assert refused.value.field == field

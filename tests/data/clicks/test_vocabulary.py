"""From values to table rows."""

from __future__ import annotations

import numpy as np
import pytest

from labkit.data.clicks import vocabulary
from labkit.data.clicks.vocabulary import Hashing, ValueCounter, Vocabulary, scramble


def test_frequent_values_get_rows_and_rare_ones_share_row_0():
    found = Vocabulary.of_counts(np.array([5, 7, 9, 11]), np.array([3, 10, 2, 1]), min_count=2, max_rows=100)
    assert found.num_rows == 4
    assert found.lookup(np.array([7, 5, 9, 11, 6])).tolist() == [1, 2, 3, 0, 0]


def test_a_table_never_has_more_rows_than_allowed():
    found = Vocabulary.of_counts(np.array([5, 7, 9]), np.array([3, 10, 2]), min_count=1, max_rows=3)
    assert found.num_rows == 3
    assert found.lookup(np.array([5, 7, 9])).tolist() == [2, 1, 0]


def test_no_value_is_frequent_enough():
    found = Vocabulary.of_counts(np.array([5]), np.array([1]), min_count=2, max_rows=10)
    assert found.num_rows == 1 and found.lookup(np.array([5, 6])).tolist() == [0, 0]


def test_values_are_counted_exactly_while_they_fit(monkeypatch):
    monkeypatch.setattr(vocabulary, "MERGE_AT", 50)
    values = np.random.default_rng(0).integers(0, 300, 5000).astype(np.uint32)
    counter = ValueCounter(1000)
    for block in np.array_split(values, 37):
        counter.add(*np.unique(block, return_counts=True))
    expected = np.unique(values, return_counts=True)
    np.testing.assert_array_equal(counter.counts(), expected)
    assert counter.undercount == 0


def test_beyond_its_capacity_a_counter_forgets_only_rare_values(monkeypatch):
    monkeypatch.setattr(vocabulary, "MERGE_AT", 200)
    rng = np.random.default_rng(0)
    rare = rng.integers(1000, 2**32, 20_000).astype(np.uint32)
    frequent = np.repeat(np.arange(20, dtype=np.uint32), 500)
    values = rng.permutation(np.concatenate([rare, frequent]))
    counter = ValueCounter(500)
    for block in np.array_split(values, 100):
        counter.add(*np.unique(block, return_counts=True))
    found, counts = counter.counts()
    assert len(found) <= 500
    assert counter.undercount > 0
    exact = dict(zip(*(part.tolist() for part in np.unique(values, return_counts=True)), strict=True))
    for value, count in zip(found.tolist(), counts.tolist(), strict=True):
        assert exact[value] - counter.undercount <= count <= exact[value]
    assert set(range(20)) <= set(found.tolist())


def test_hashing_fills_the_rows_evenly_but_row_0():
    rows = Hashing(11).lookup(np.arange(100_000, dtype=np.uint32))
    counts = np.bincount(rows, minlength=11)
    assert counts[0] == 0
    assert counts[1:] == pytest.approx(10_000, abs=500)  # five standard deviations


def test_scrambling_never_gives_two_values_one_name():
    assert len(np.unique(scramble(np.arange(200_000, dtype=np.uint32)))) == 200_000

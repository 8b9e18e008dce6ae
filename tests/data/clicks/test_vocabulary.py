"""From values to table rows."""

from __future__ import annotations

import numpy as np
import pytest

from labkit.data.clicks import prepare
from labkit.data.clicks.prepare import ValueCounter, hashed_rows, scramble


@pytest.mark.parametrize("capacity", [1000, 10**6], ids=["beyond its capacity", "while they fit"])
def test_a_counter_forgets_only_rare_values_and_only_beyond_its_capacity(monkeypatch, capacity):
    monkeypatch.setattr(prepare, "MERGE_AT", 200)
    rng = np.random.default_rng(0)
    rare = rng.integers(1000, 2**32, 20_000).astype(np.uint32)
    frequent = np.repeat(np.arange(20, dtype=np.uint32), 500)
    values = rng.permutation(np.concatenate([rare, frequent]))
    counter = ValueCounter(capacity)
    for block in np.array_split(values, 100):
        counter.add(block)
    found, counts = counter.counts()
    exact = dict(zip(*(part.tolist() for part in np.unique(values, return_counts=True)), strict=True))
    assert len(found) == len(exact) if capacity > len(values) else len(found) <= capacity
    assert (counter.undercount > 0) == (capacity < len(exact))
    for value, count in zip(found.tolist(), counts.tolist(), strict=True):
        assert exact[value] - counter.undercount <= count <= exact[value]
    assert set(range(20)) <= set(found.tolist())


def test_hashing_fills_the_rows_evenly_but_row_0_and_scrambling_gives_no_two_values_one_name():
    values = np.arange(100_000, dtype=np.uint32)
    counts = np.bincount(hashed_rows(values, 11), minlength=11)
    assert counts[0] == 0
    assert counts[1:] == pytest.approx(10_000, abs=500)  # five standard deviations
    assert len(np.unique(scramble(values))) == 100_000

"""The features of trips: every way gives what plain Python gives, on any lines."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st

from labkit import UserError, pipelines
from labkit.compiled import why_not_compiled
from labkit.pipelines.data import DEPARTMENTS
from labkit.pipelines.ways import COLUMNS, by_pandas


def make_lines(trips: int, seed: int = 0) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    trip = np.repeat(3 * np.arange(trips), random.integers(1, 9, trips))
    count = len(trip)
    quantity = random.integers(-2, 4, count)
    department, price = random.integers(0, DEPARTMENTS, count), random.lognormal(1, 1, count).round(2)
    return pd.DataFrame({"trip": trip, "department": department, "quantity": quantity, "price": price})


def by_hand(lines: pd.DataFrame) -> tuple[list[int], list[list[float]]]:
    """Another loop than that of `labkit.pipelines.ways`."""
    found: dict[int, list[float]] = {}
    for trip, department, quantity, price in lines.to_numpy():
        row = found.setdefault(int(trip), [0.0] * (3 * DEPARTMENTS + 5))
        for place in (int(department), DEPARTMENTS):
            for number, value in enumerate((quantity, quantity * price, 1)):
                row[3 * place + number] += value
        row[-2], row[-1] = max(row[-2], price), row[-1] + (quantity < 0)
    return list(found), list(found.values())


@pytest.mark.parametrize("way", pipelines.WAYS)
def test_each_way_gives_what_a_loop_gives(way):
    if way in ("polars", "duckdb"):
        pytest.importorskip(way, reason=f"the way {way!r} needs {way}")
    if way == "compiled" and why_not_compiled() is not None:
        pytest.skip(f"needs numba: {why_not_compiled()}")
    lines = make_lines(200)
    trips, matrix = pipelines.make_features(lines, way)
    expected = by_hand(lines)
    assert trips.tolist() == expected[0] and matrix.shape == (200, 3 * DEPARTMENTS + 5)
    assert pipelines.largest_difference((trips, matrix), (trips, np.array(expected[1]))) <= pipelines.TOLERANCE


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 6), st.integers(0, DEPARTMENTS - 1), st.integers(-5, 5), st.floats(0, 1e4, allow_nan=False)
        ),
        max_size=40,
    )
)
def test_one_pass_gives_what_a_loop_gives_on_any_lines(drawn):
    lines = pd.DataFrame(sorted(drawn, key=lambda each: each[0]), columns=COLUMNS)
    arrays = [lines[name].to_numpy(float if name == "price" else np.int64) for name in COLUMNS]
    trips, matrix = pipelines.one_pass(*arrays)
    expected = by_hand(lines)
    assert trips.tolist() == expected[0]
    assert np.array_equal(matrix, np.array(expected[1]).reshape(matrix.shape))
    if why_not_compiled() is None:  # machine code may compute otherwise without a warning
        assert all(map(np.array_equal, pipelines.compiled_pass()(*arrays), (trips, matrix)))


@given(st.lists(st.integers(1, 30), max_size=30), st.integers(1, 9))
def test_parts_cut_no_trip_and_lose_no_line(lengths, count):
    trip = np.repeat(np.arange(len(lengths)), lengths)
    parts = pipelines.parts_of(trip, count)
    assert np.array_equal(np.concatenate([trip[part] for part in parts]), trip)
    assert 1 <= len(parts) <= count
    assert all(trip[part.start - 1] != trip[part.start] for part in parts[1:])
    even, longest = len(trip) / count, max(lengths, default=0)
    assert all(part.stop - part.start <= even + longest + 1 for part in parts)


def test_processes_and_threads_give_the_same():
    lines = make_lines(150)
    whole = by_pandas(lines)
    assert pipelines.largest_difference(whole, pipelines.in_processes(by_pandas, lines, 2)) <= pipelines.TOLERANCE
    assert pipelines.largest_difference(whole, pipelines.in_threads(by_pandas, lines, 3)) <= pipelines.TOLERANCE


def test_a_difference_is_seen():
    trips, matrix = by_pandas(make_lines(20))
    other = matrix.copy()
    other[3, 5] += 0.01
    assert pipelines.largest_difference((trips, matrix), (trips, other)) > pipelines.TOLERANCE
    assert pipelines.largest_difference((trips, matrix), (trips + 1, matrix)) == np.inf


@pytest.mark.parametrize(
    ("change", "field", "said"),
    [
        (lambda lines: lines.iloc[::-1], "trip", "sort the lines by trip"),
        (lambda lines: lines.assign(department=DEPARTMENTS), "department", "line 1 of the data has department 12"),
        (lambda lines: lines.assign(price=lines["price"].where(lines.index != 4)), "price", "line 5 of the data lacks"),
    ],
)
def test_lines_that_no_way_can_use_are_named(change, field, said):
    with pytest.raises(UserError, match=said) as refused:
        pipelines.make_features(change(make_lines(30)), "pandas")
    assert refused.value.field == field


def test_a_way_without_its_library_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "polars", None)
    with pytest.raises(UserError, match="pip install polars"):
        pipelines.make_features(make_lines(3), "polars")

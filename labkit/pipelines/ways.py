"""The features of trips, made in several ways with one result: a function a group, whole columns, one compiled pass.

All take lines sorted by trip, and return the trips and a matrix (trips, 41): of each department the quantity, what was
spent and the lines, then the same of the trip, its highest price, and its returned lines.

Two ways are equal if they differ by less than `TOLERANCE` of the largest value in a column. They add the same numbers
in another order, and polars and DuckDB in an order that differs between two runs: a sum of n numbers is then off by up
to n · 2⁻⁵³ of the sum of their sizes, which for the 10 or so lines of a trip is far less.
"""

import functools
import itertools
import multiprocessing
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from statistics import median

import numpy as np
import pandas as pd

from labkit import UserError, compiled
from labkit.pipelines.data import DEPARTMENTS, ensure

TOLERANCE = 1e-12
WIDTH = 3 * DEPARTMENTS + 5
COLUMNS = ["trip", "department", "quantity", "price"]
Features = tuple[np.ndarray, np.ndarray]
"""Trips (n,), and their features (n, WIDTH)"""
Way = Callable[[pd.DataFrame], Features]


def of_a_trip(lines: pd.DataFrame) -> pd.Series:
    """The features of one trip, in plain Python."""
    row = [0.0] * WIDTH
    for department, quantity, price in zip(lines["department"], lines["quantity"], lines["price"], strict=True):
        for first in (3 * department, 3 * DEPARTMENTS):
            row[first] += quantity
            row[first + 1] += quantity * price
            row[first + 2] += 1
        row[-2] = max(row[-2], price)
        row[-1] += quantity < 0
    return pd.Series(row)


def by_function(lines: pd.DataFrame) -> Features:
    """A Python function for each group, as tutorials do it."""
    found = lines.groupby("trip")[COLUMNS[1:]].apply(of_a_trip)
    return found.index.to_numpy(), found.to_numpy()


def by_pandas(lines: pd.DataFrame) -> Features:
    """pandas' own aggregations over whole columns."""
    quantity, ones = lines["quantity"].astype(float), np.ones(len(lines))
    spent = quantity * lines["price"]
    values = pd.DataFrame({"trip": lines["trip"], "quantity": quantity, "spent": spent, "lines": ones})
    cells = values.groupby(["trip", lines["department"]]).sum().unstack(fill_value=0.0)
    cells = cells.reindex(columns=[(name, d) for d in range(DEPARTMENTS) for name in values.columns[1:]], fill_value=0)
    whole = values.groupby("trip").sum()
    highest = lines.groupby("trip")["price"].max()
    returned = (lines["quantity"] < 0).groupby(lines["trip"]).sum()
    columns = [cells.to_numpy(), whole.to_numpy(), highest.to_numpy()[:, None], returned.to_numpy()[:, None]]
    return whole.index.to_numpy(), np.hstack(columns)


def one_pass(trip: np.ndarray, department: np.ndarray, quantity: np.ndarray, price: np.ndarray) -> Features:
    """One loop over rows that are sorted by trip; numba compiles it."""
    count = 1 if len(trip) else 0
    for row in range(1, len(trip)):
        count += trip[row] != trip[row - 1]
    trips, found, at = np.zeros(count, trip.dtype), np.zeros((count, WIDTH)), -1
    for row in range(len(trip)):
        if row == 0 or trip[row] != trip[row - 1]:
            at += 1
            trips[at] = trip[row]
        for first in (3 * department[row], 3 * DEPARTMENTS):
            found[at, first] += quantity[row]
            found[at, first + 1] += quantity[row] * price[row]
            found[at, first + 2] += 1
        found[at, WIDTH - 2] = max(found[at, WIDTH - 2], price[row])
        found[at, WIDTH - 1] += quantity[row] < 0
    return trips, found


@functools.cache
def compiled_pass() -> Callable[..., Features]:
    """`one_pass` as machine code, which runs without Python's lock.

    Raises:
        UserError: numba is not there, or does not work.
    """
    if (why := compiled.why_not_compiled()) is not None:
        raise UserError(f"the way 'compiled' needs numba: {why}.", field="way")
    import numba

    return numba.njit(cache=True, nogil=True)(one_pass)


def by_compiled(lines: pd.DataFrame) -> Features:
    """One compiled pass over the sorted rows."""
    return compiled_pass()(*(lines[name].to_numpy() for name in COLUMNS))


def by_polars(lines: pd.DataFrame) -> Features:
    """polars, from pandas and back."""
    try:
        import polars as pl
    except ModuleNotFoundError as error:
        raise UserError("the way 'polars' needs polars: `pip install polars`.", field="way") from error
    department, quantity, price = pl.col("department"), pl.col("quantity"), pl.col("price")
    spent, sums = quantity * price, []
    for number in range(DEPARTMENTS):
        own = department == number
        sums += [quantity.filter(own).sum(), spent.filter(own).sum(), own.sum()]
    sums += [quantity.sum(), spent.sum(), pl.len(), price.max(), (quantity < 0).sum()]
    sums = [each.alias(str(number)) for number, each in enumerate(sums)]
    frame = pl.DataFrame({name: lines[name].to_numpy() for name in COLUMNS})
    found = frame.group_by("trip").agg(*sums).sort("trip")
    return found["trip"].to_numpy(), found.drop("trip").cast(pl.Float64).to_numpy()


def by_duckdb(lines: pd.DataFrame) -> Features:
    """DuckDB, from pandas and back."""
    try:
        import duckdb
    except ModuleNotFoundError as error:
        raise UserError("the way 'duckdb' needs DuckDB: `pip install 'labkit[query]'`.", field="way") from error
    values = ("quantity", "quantity * price", "1.0")
    sums = [f"sum({v}) FILTER (department = {d})" for d in range(DEPARTMENTS) for v in values]
    sums += [f"sum({value})" for value in values] + ["max(price)", "sum((quantity < 0)::INT)"]
    with duckdb.connect() as database:
        database.register("lines", lines[COLUMNS])
        query = f"SELECT trip, {', '.join(f'coalesce({each}, 0)::DOUBLE' for each in sums)} FROM lines GROUP BY trip"
        found = database.sql(f"{query} ORDER BY trip").df()
    return found["trip"].to_numpy(), found.drop(columns="trip").to_numpy()


def parts_of(trip: np.ndarray, count: int) -> list[slice]:
    """Slices of about equal length that cut no trip in two; fewer if there are not enough trips."""
    wanted = np.arange(1, count) * len(trip) // count
    cuts = np.searchsorted(trip, trip[wanted]) if len(trip) else []
    ends = [0, *dict.fromkeys(int(cut) for cut in cuts if cut), len(trip)]
    return [slice(begin, end) for begin, end in itertools.pairwise(ends)]


def in_processes(way: Way, lines: pd.DataFrame, count: int) -> Features:
    """A way in several processes; the lines go to them, and the features back, through pipes."""
    context = multiprocessing.get_context("spawn" if sys.platform == "win32" else "forkserver")
    try:
        with ProcessPoolExecutor(count, mp_context=context) as pool:
            return _in_parts(pool, way, lines, count)
    except BrokenProcessPool:
        raise UserError(
            "a process that made features was ended from outside, often because memory ran out: use fewer "
            "(--processes), or --way compiled, which needs none.",
            field="processes",
        ) from None


def in_threads(way: Way, lines: pd.DataFrame, count: int) -> Features:
    """A way in several threads of this process, which share the lines; it has to do without Python's lock."""
    with ThreadPoolExecutor(count) as pool:
        return _in_parts(pool, way, lines, count)


def _in_parts(pool: Executor, way: Way, lines: pd.DataFrame, count: int) -> Features:
    parts = parts_of(lines["trip"].to_numpy(), count)
    trips, matrices = zip(*pool.map(way, [lines.iloc[part] for part in parts]), strict=True)
    return np.concatenate(trips), np.concatenate(matrices)


WAYS: dict[str, Way] = {
    "function": by_function,
    "pandas": by_pandas,
    "compiled": by_compiled,
    "polars": by_polars,
    "duckdb": by_duckdb,
}


def make_features(lines: pd.DataFrame, way: str, processes: int = 1) -> Features:
    """The features of trips in one of `WAYS`, in one process or several.

    Raises:
        UserError: the lines are not sorted by trip, or have a value that no way is made for.
    """
    trip, department = lines["trip"].to_numpy(), lines["department"].to_numpy()
    unsorted = np.flatnonzero(trip[1:] < trip[:-1])
    if len(unsorted):
        raise UserError(
            f"line {unsorted[0] + 2} of the data belongs to trip {trip[unsorted[0] + 1]}, but the line before it to "
            f"{trip[unsorted[0]]}: sort the lines by trip (`lines.sort_values('trip', kind='stable')`).",
            field="trip",
        )
    outside = np.flatnonzero((department < 0) | (department >= DEPARTMENTS))
    if len(outside):  # the compiled pass would write past the end of a row
        raise UserError(
            f"line {outside[0] + 1} of the data has department {department[outside[0]]}: departments are 0 to "
            f"{DEPARTMENTS - 1}; drop or correct the line in the stage 'clean'.",
            field="department",
        )
    missing = lines[COLUMNS].isna().to_numpy().any(1)
    if missing.any():
        raise UserError(
            f"line {missing.argmax() + 1} of the data lacks a value: drop it in the stage 'clean' (`lines.dropna()`).",
            field="price",
        )
    return WAYS[way](lines) if processes == 1 else in_processes(WAYS[way], lines, processes)


def largest_difference(one: Features, other: Features) -> float:
    """How much the features of two ways differ, as a share of the largest value of a column; infinite if trips do."""
    if not np.array_equal(one[0], other[0]):
        return np.inf
    sizes = np.abs(one[1]).max(0, initial=0.0)
    return float((np.abs(one[1] - other[1]).max(0, initial=0.0) / np.where(sizes > 0, sizes, 1)).max())


def time_ways(scale: float, rounds: int = 3) -> pd.DataFrame:
    """Time every way that is installed, and processes and threads, in turn on the trips of one scale.

    Returns:
        Columns way, first_s (with what a first call compiles and loads), seconds (the median of the later rounds),
        gain (times as fast as the function), difference (`largest_difference` from the function) and note.
    """
    lines = pd.read_csv(ensure("trips", scale) / "lines.csv").query("quantity != 0")
    tried: dict[str, Callable[[], Features]] = {name: functools.partial(make_features, lines, name) for name in WAYS}
    for name in ("function", "pandas", "compiled"):
        tried[f"{name}, 2 processes"] = functools.partial(make_features, lines, name, 2)
    tried["compiled, 2 threads"] = functools.partial(in_threads, by_compiled, lines, 2)
    notes, found, taken = dict.fromkeys(tried, ""), {}, defaultdict(list)
    for number in range(rounds + 1):
        for name, way in tried.items():
            if notes[name] or (number > 1 and name.startswith("function")):  # it is slow enough to be clear
                continue
            began = time.perf_counter()
            try:
                found[name] = way()
            except UserError as error:
                notes[name] = str(error)
            else:
                taken[name].append(time.perf_counter() - began)
    columns = {
        "first_s": {name: seconds[0] for name, seconds in taken.items()},
        "seconds": {name: median(seconds[1:] or seconds) for name, seconds in taken.items()},
        "difference": {name: largest_difference(found["function"], each) for name, each in found.items()},
        "note": notes,
    }
    table = pd.DataFrame(columns, list(tried)).rename_axis("way").reset_index()
    table.insert(3, "gain", table["seconds"].iloc[0] / table["seconds"])
    return table

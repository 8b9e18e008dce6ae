"""Turn files that a schema describes into a prepared click log, in bounded memory.

The text is parsed once into the prepared arrays: dense features minus an offset, NaN where missing, and a number for
each value of a category. If the split requires it, the rows are reordered. Then means and vocabularies are learnt from
the training rows, and all rows are converted in place into what a model takes.

N rows, n of a block, D dense features, F categorical features.
"""

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from labkit import DataError, hardware
from labkit.data.clicks.checks import RowChecker
from labkit.data.clicks.columns import Block, Span, estimate_rows, number, read_columns
from labkit.data.clicks.generate import scramble
from labkit.data.clicks.schema import Split, TableSchema
from labkit.data.store import BadRows, Progress, check_disk

SPLITS = ("train", "validation", "test")
PARTS = ("dense", "categorical", "label")
ROWS_AT_ONCE = 2**17
COUNTED_VALUES = 2**24
"""Most distinct values that are counted at the same time, over all categorical features; 12 bytes each"""
MERGE_AT = 2**16
"""Number of new values that are merged at once, or the number of known values if that is larger"""
CONSTANT = "constant"
"""Name of the feature that stands for those that a table has none of: a dense one of zeros, or a table of one row. The
model learns a constant from it."""
LAST_DAY = 1 / 7
"""Share of the rows for validation and test when a single file is split by time: the last of Kaggle's seven days, as in
the reference DLRM and MLPerf. Of several files it is the last one."""


class ClickWriter(contextlib.AbstractContextManager):
    """Appends rows to a click log that is being prepared.

    The number of rows is written into the headers of the .npy files at the end.
    """

    def __init__(self, folder: Path, dense_dim: int, num_tables: int, pooling_factor: int = 1):
        self.rows = 0
        self._kinds = ((np.float32, (dense_dim,)), (np.int32, (num_tables, pooling_factor)), (np.uint8, ()))
        self._files = [(folder / f"{part}.npy").open("wb") for part in PARTS]
        self._write_headers()

    def append(self, dense: np.ndarray, categorical: np.ndarray, label: np.ndarray) -> None:
        """Add rows: dense (n, D), categorical (n, F, L), label (n,)."""
        for file, (dtype, _), array in zip(self._files, self._kinds, (dense, categorical, label), strict=True):
            file.write(np.ascontiguousarray(array, dtype=dtype).data)
        self.rows += len(label)

    def __exit__(self, *_) -> None:
        self._write_headers()
        for file in self._files:
            file.close()

    def _write_headers(self) -> None:
        for file, (dtype, shape) in zip(self._files, self._kinds, strict=True):
            file.seek(0)
            facts = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": (self.rows, *shape)}
            np.lib.format.write_array_header_1_0(file, facts)


def prepare_files(
    folder: Path,
    files: list[Path],
    schema: TableSchema,
    seed: int,
    bad: BadRows,
    progress: Progress,
    schema_file: Path | None = None,
    notices: tuple[str, ...] = (),
) -> dict:
    """Write the arrays of `files`, in this order, into `folder` and return the content of its `meta.json`."""
    checker = RowChecker(schema, bad, schema_file)
    expected_rows = sum(map(estimate_rows, files))
    needed_bytes = expected_rows * (4 * (len(schema.dense) + len(schema.categorical) + len(schema.bucketise)) + 1)
    free_bytes = check_disk(folder, needed_bytes)
    needed, free = map(hardware.size_text, (needed_bytes, free_bytes))
    progress(0.0, f"about {expected_rows:,} rows: {needed} of disk ({free} free)")
    rows_of_files, folds, offset, spans = _parse(folder, files, schema, checker, expected_rows, progress)
    rows = sum(rows_of_files)
    bad.expect(rows + bad.count)
    order = split_rows(rows_of_files, folds, schema.split, seed)
    splits = {split: len(chosen) for split, chosen in order.items()}
    if min(splits.values()) == 0:
        sizes = ", ".join(f"{split} {size}" for split, size in splits.items())
        asked = ", ".join(f"split.{key}" for key, value in asdict(schema.split).items() if value)
        what, place = f"{rows} usable rows of {files[0]} leave a split empty ({sizes}).", asked and schema_file
        fix = "Give more rows, or change the split in the schema."
        raise DataError(what, fix=fix, file=place or files[0], field=asked or None)
    if not schema.split.by_time:
        progress(0.65, "split")
        _reorder(folder, np.concatenate(list(order.values())))
    train = splits["train"]
    clicks = sum(int(block.sum()) for block in _blocks(folder, "label", train))
    if clicks in (0, train):
        values = ", ".join(map(repr, checker.label_values))
        what = f"All {train:,} training rows have a {'positive' if clicks else 'negative'} label (there are {values})"
        fix = "Use rows of both classes, or check the positive and negative values in the schema."
        if len(checker.label_values) > 2 and not np.isnan([number(text) for text in checker.label_values]).any():
            fix = f"Of a number write label.at_least, as in {{ column = {schema.label.column!r}, at_least = 4 }}."
        raise DataError(f"{what}, so there is nothing to learn.", fix=fix, file=files[0], field=schema.label.column)
    progress(0.7, "dense features: mean and spread")
    mean, deviation = _dense_statistics(folder, train)
    progress(0.75, "categories: vocabulary")
    buckets = [_bucket_edges(folder, train, schema, column) for column in schema.bucketise]
    with ThreadPoolExecutor(2, "labkit-clicks") as pool:  # a feature is counted and looked up without the others
        lookups = _learn_tables(folder, train, schema, pool)
        categorical = _blocks(folder, "categorical")
        for done, dense in enumerate(_blocks(folder, "dense")):
            progress(0.8 + 0.2 * done * ROWS_AT_ONCE / rows, "standardise, and look up rows of tables")
            values = next(categorical)[:, :, 0]
            found = pool.map(lambda lookup, own: lookup[1](own), lookups, values.T.copy().view(np.uint32))
            for feature, (column, edges) in enumerate(buckets, len(lookups)):
                # a bucket ends just before its edge, so that a value that fills several quantiles (often 0) has its own
                values[:, feature] = np.where(np.isnan(dense[:, column]), 0, np.digitize(dense[:, column], edges) + 1)
            dense[:] = np.nan_to_num((dense - mean) / deviation, copy=False)
            for feature, rows_found in enumerate(found):
                values[:, feature] = rows_found
    buckets_of = [f"{column} (bucket)" for column in schema.bucketise]
    if spans:
        most, first = max(spans)
        words = f"{len(spans):,}; the longest has {most:,}, from line {first} on"
        fix = "If the file quotes nothing, write quotes = false in the schema."
        notices = (*notices, f"rows with quoted text of several lines: {words}. {fix}")
    return {
        "dense_names": schema.dense or [CONSTANT],
        "categorical_names": [*schema.categorical, *buckets_of] or [CONSTANT],
        "table_rows": [*(size for size, _ in lookups), *(len(edges) + 2 for _, edges in buckets)] or [1],
        "pooling_factor": 1,
        "splits": splits,
        "info": {
            "source": [str(file) for file in files],
            "schema": asdict(schema),
            "rows": rows,
            "base_rate": clicks / train,
            "dense_mean": (mean + offset).tolist(),
            "dense_sd": deviation.tolist(),
            "skipped": bad.info(),
            "notices": notices,
        },
    }


def _parse(
    folder: Path, files: list[Path], schema: TableSchema, checker: RowChecker, expected_rows: int, progress: Progress
) -> tuple[list[int], np.ndarray, np.ndarray, list[Span]]:
    """Write the content of the files into the arrays.

    Returns:
        The number of good rows of each file that has some, the fold of each row (see `RowChecker.check`), the offsets
        (D,) that were subtracted from the dense features, and the rows with text over several lines.
    """
    counts, folds, spans = [], [np.empty(0, np.uint8)], []
    dense_dim, tables = max(1, len(schema.dense)), max(1, len(schema.categorical) + len(schema.bucketise))
    offset = np.full(dense_dim, np.nan)
    with ClickWriter(folder, dense_dim, tables) as writer:
        for file in files:
            before = writer.rows
            for block in _ahead(read_columns(file, schema)):
                label, dense, values, fold = checker.check(file, block)
                spans += block.spans
                if len(label) == 0:
                    continue
                # the median of the first block that has values: then 32 bits are enough for the differences of large
                # numbers, such as times in nanoseconds
                new = np.isnan(offset) & ~np.isnan(dense).all(0)
                offset[new] = np.nanmedian(dense[:, new], axis=0)
                categorical = np.zeros((len(label), tables, 1), np.int32)
                categorical[:, : len(schema.categorical), 0] = values.view(np.int32)
                writer.append(dense - offset, categorical, label)
                if schema.split.column is not None:
                    folds.append(fold)
                done = min(0.65, 0.65 * writer.rows / max(1, expected_rows))
                progress(done, f"{file.name}: {writer.rows:,} rows read")
            counts += [writer.rows - before] * (writer.rows > before)  # Spark writes parts without rows
    if not counts:
        raise DataError("The file has no usable row.", fix="Give a file with rows.", file=files[0])
    return counts, np.concatenate(folds), np.nan_to_num(offset), spans


def _ahead(blocks: Iterator[Block]) -> Iterator[Block]:
    """Blocks in their order, of which the next is read in a thread. An error comes in the place of its block."""
    with ThreadPoolExecutor(1, "labkit-reader") as pool:  # which lets the block in progress be finished
        coming: Future[Any] = pool.submit(next, blocks, None)
        while (block := coming.result()) is not None:
            coming = pool.submit(next, blocks, None)
            yield block


def split_rows(
    rows_of_files: list[int], folds: np.ndarray, split: Split, seed: int
) -> dict[str, np.ndarray] | dict[str, range]:
    """Row numbers of each split, in the order in which they are written."""
    rows = sum(rows_of_files)
    if split.by_time:
        last = rows_of_files[-1] if len(rows_of_files) > 1 else round(rows * LAST_DAY)
        validation = last // 2 if split.validation is None else round(rows * split.validation)
        test = last - last // 2 if split.test is None else round(rows * split.test)
        train = max(0, rows - validation - test)
        return dict(zip(SPLITS, (range(train), range(train, rows - test), range(rows - test, rows)), strict=True))
    rng = np.random.default_rng(seed)
    if split.column is not None:
        test = np.flatnonzero(folds == 2)
    elif split.last_rows is not None:
        test = np.arange(max(0, rows - split.last_rows), rows)
    else:
        test = np.sort(rng.permutation(rows)[: round(rows * (0.1 if split.test is None else split.test))])
    left = np.setdiff1d(np.arange(rows), test)
    if split.column is not None and split.validation_values:
        validation = np.flatnonzero(folds == 1)
    else:
        share = 0.1 if split.validation is None else split.validation
        validation = np.sort(rng.permutation(left)[: round(len(left) * share)])
    return {"train": np.setdiff1d(left, validation), "validation": validation, "test": test}


def _reorder(folder: Path, order: np.ndarray) -> None:
    """Reorder the rows of the arrays."""
    for part in PARTS:
        path, other = folder / f"{part}.npy", folder / "ordered.npy"
        rows = np.load(path, mmap_mode="r")
        ordered = np.lib.format.open_memmap(other, "w+", rows.dtype, rows.shape)
        for first in range(0, len(order), ROWS_AT_ONCE):
            ordered[first : first + ROWS_AT_ONCE] = rows[order[first : first + ROWS_AT_ONCE]]
        del rows, ordered  # Windows cannot replace a mapped file
        other.replace(path)


def _blocks(folder: Path, part: str, stop: int | None = None):
    """Writable views of the first `stop` rows of an array, in blocks. Each is unmapped before the next is mapped."""
    stop = len(np.load(folder / f"{part}.npy", mmap_mode="r")) if stop is None else stop
    for first in range(0, stop, ROWS_AT_ONCE):
        array = np.load(folder / f"{part}.npy", mmap_mode="r+")
        yield array[first : min(first + ROWS_AT_ONCE, stop)]
        del array


def _dense_statistics(folder: Path, train_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation float64 (D,) of the training rows without NaN; (0, 1) for an empty column."""
    count = total = squares = 0.0
    for block in _blocks(folder, "dense", train_rows):
        values, missing = block.astype(np.float64), np.isnan(block)
        values[missing] = 0
        count = count + len(values) - missing.sum(0)
        total = total + values.sum(0)
        squares = squares + np.einsum("nd,nd->d", values, values)
    mean = total / np.maximum(count, 1)
    deviation = np.sqrt(np.maximum(squares / np.maximum(count, 1) - mean * mean, 0))
    return mean, np.where(deviation > 1e-9, deviation, 1.0)


def _learn_tables(folder: Path, train_rows: int, schema: TableSchema, pool: Executor) -> list[tuple[int, Callable]]:
    """For each categorical column the size of its table, and the function from values uint32 (n,) to rows int32."""
    features, most = len(schema.categorical), schema.max_rows_per_table
    if schema.vocabulary == "hash":
        return [(most, partial(hashed_rows, num_rows=most))] * features

    def learn(counter: ValueCounter) -> tuple[int, Callable]:
        values, counts = counter.counts()
        order = np.argsort(-counts, kind="stable")  # the most frequent first
        frequent = order[counts[order] >= schema.min_count]
        vocabulary = pa.array(values[frequent[: most - 1]])  # row 0 is of unknown and rare values
        return len(vocabulary) + 1, partial(rows_of, vocabulary=vocabulary)

    counters = [ValueCounter(COUNTED_VALUES // features) for _ in schema.categorical]
    for block in _blocks(folder, "categorical", train_rows):
        list(pool.map(ValueCounter.add, counters, block[:, :, 0].T.copy().view(np.uint32)))
    return list(pool.map(learn, counters))


def _bucket_edges(folder: Path, train_rows: int, schema: TableSchema, column: str) -> tuple[int, np.ndarray]:
    """The index of a dense column, and the edges of its buckets: quantiles of the training rows."""
    place, buckets = schema.dense.index(column), schema.bucketise[column]
    values = np.load(folder / "dense.npy", mmap_mode="r")[:train_rows, place]
    known = values[~np.isnan(values)]
    return place, np.unique(np.quantile(known, np.arange(1, buckets) / buckets)) if len(known) else known


class ValueCounter:
    """Counts the values of one feature in bounded memory.

    Beyond `capacity` distinct values the rarest are dropped, as in lossy counting (Manku and Motwani, VLDB 2002).
    """

    def __init__(self, capacity: int):
        self.capacity = capacity
        self._known: list[tuple[np.ndarray, np.ndarray]] = []
        self._waiting = 0
        self._distinct = 0

    def add(self, values: np.ndarray) -> None:
        """Count values uint32 (n,)."""
        self._known.append(np.unique(values, return_counts=True))
        self._waiting += len(self._known[-1][0])
        if self._waiting > max(MERGE_AT, self._distinct):
            self.counts()

    def counts(self) -> tuple[np.ndarray, np.ndarray]:
        """Distinct values, ascending, and their counts."""
        values, place = np.unique(np.concatenate([values for values, _ in self._known]), return_inverse=True)
        counts = np.bincount(place, np.concatenate([counts for _, counts in self._known])).astype(np.int64)
        if len(values) > self.capacity:
            # halved, not trimmed to the capacity, or the next merge would exceed it again
            rarest = np.partition(counts, -self.capacity // 2)[-self.capacity // 2]
            values, counts = values[counts > rarest], counts[counts > rarest]
        self._known, self._waiting, self._distinct = [(values, counts)], 0, len(values)
        return values, counts


def rows_of(values: np.ndarray, vocabulary: pa.Array) -> np.ndarray:
    """Table rows int32 (n,) of values (n,): from 1, in the order of the vocabulary; 0 for unknown values."""
    found = pc.index_in(pa.array(values), vocabulary)
    return pc.fill_null(found, -1).to_numpy() + np.int32(1)


def hashed_rows(values: np.ndarray, num_rows: int) -> np.ndarray:
    """Table rows int32 (n,), from 1, selected by the hash of values uint32 (n,); several values may share a row."""
    return (scramble(values) % np.uint32(num_rows - 1)).astype(np.int32) + 1

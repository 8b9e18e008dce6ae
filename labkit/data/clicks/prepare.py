"""From files that a schema describes to a prepared click log, in bounded memory.

The text is parsed once into the prepared arrays: dense features less a number of their size, NaN where missing, and
numbers for the values of the categories. Where the split needs it rows are put in another order. Then the training rows
are read back to learn means and vocabularies, and all rows are turned in place into what a model takes.

N rows, n of a block, D dense features, F categorical features.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np

from labkit.data.bad_rows import BadRows
from labkit.data.clicks.columns import estimate_rows, read_columns
from labkit.data.clicks.prepared import PARTS, SPLITS, ClickWriter, write_meta
from labkit.data.clicks.rows import RowChecker
from labkit.data.clicks.schema import Split, TableSchema
from labkit.data.clicks.vocabulary import ValueCounter, hashed_rows, rows_of, vocabulary_of
from labkit.data.store import Progress, check_disk
from labkit.errors import DataError
from labkit.hardware.sizes import size_text

ROWS_AT_ONCE = 2**17
COUNTED_VALUES = 2**24
"""Distinct values that are counted at once, over all categorical features; 12 bytes each."""
LAST_DAY = 1 / 7
"""Of Kaggle's seven days the last is for validation and test, as in the reference DLRM and MLPerf, and so is the last
file of several."""


def preflight(files: list[Path], folder: Path, schema: TableSchema) -> str:
    """What preparing files into `folder` takes, in words.

    Raises:
        UserError: the prepared data would not fit on the disk.
    """
    rows = sum(map(estimate_rows, files))
    needed_bytes = rows * (4 * (len(schema.dense) + len(schema.categorical) + len(schema.bucketise)) + 1)
    free_bytes = check_disk(folder, needed_bytes)
    return f"about {rows:,} rows: {size_text(needed_bytes)} of disk ({size_text(free_bytes)} free)"


def prepare_files(
    folder: Path,
    files: list[Path],
    schema: TableSchema,
    *,
    name: str,
    fingerprint: str,
    seed: int,
    bad: BadRows,
    progress: Progress,
) -> None:
    """Write the prepared click log of `files`, in their order, into `folder`.

    Raises:
        DataError: bad rows, a damaged file, too few for a split, or training rows of one class only.
    """
    rows_of_files, folds, offset = _parse(folder, files, schema, bad, progress)
    rows = sum(rows_of_files)
    order = split_rows(rows_of_files, folds, schema.split, seed)
    splits = {split: len(chosen) for split, chosen in order.items()}
    if min(splits.values()) == 0:
        what = f"{rows} usable rows leave a split empty ({splits})."
        raise DataError(what, fix="Give more rows, or change [split] in the schema.", file=files[0])
    if not schema.split.by_time:
        progress(0.65, "split")
        _reorder(folder, np.concatenate(list(order.values())))
    train = splits["train"]
    clicks = sum(int(block.sum()) for block in _blocks(folder, "label", train))
    if clicks in (0, train):
        what = f"All {train:,} training rows have a {'positive' if clicks else 'negative'} label"
        fix = "Use rows of both classes, or check the positive and negative values in the schema."
        raise DataError(f"{what}, so there is nothing to learn.", fix=fix, file=files[0], field=schema.label.column)
    progress(0.7, "dense features: mean and spread")
    mean, deviation = _dense_statistics(folder, train)
    progress(0.75, "categories: vocabulary")
    lookups = _learn_tables(folder, train, schema)
    buckets = [_bucket_edges(folder, train, schema, column) for column in schema.bucketise]
    categorical = _blocks(folder, "categorical")
    for done, dense in enumerate(_blocks(folder, "dense")):
        progress(0.8 + 0.2 * done * ROWS_AT_ONCE / rows, "standardise, and look up rows of tables")
        values = next(categorical)[:, :, 0]
        for feature, (_, look_up) in enumerate(lookups):
            values[:, feature] = look_up(values[:, feature].view(np.uint32))
        for feature, (column, edges) in enumerate(buckets, len(lookups)):
            # A bucket ends just before its edge, so that a value that fills several quantiles (often 0) has its own.
            values[:, feature] = np.where(np.isnan(dense[:, column]), 0, np.digitize(dense[:, column], edges) + 1)
        dense -= mean.astype(np.float32)
        dense /= deviation.astype(np.float32)
        dense[np.isnan(dense)] = 0
    write_meta(
        folder,
        name=name,
        dense_names=list(schema.dense),
        categorical_names=[*schema.categorical, *(f"{column} (bucket)" for column in schema.bucketise)],
        table_rows=[*(size for size, _ in lookups), *(len(edges) + 2 for _, edges in buckets)],
        fingerprint=fingerprint,
        splits=splits,
        info={
            "source": [str(file) for file in files],
            "schema": asdict(schema),
            "rows": rows,
            "base_rate": clicks / train,
            "dense_mean": (mean + offset).tolist(),
            "dense_sd": deviation.tolist(),
            "skipped": bad.info(),
        },
    )


def _parse(
    folder: Path, files: list[Path], schema: TableSchema, bad: BadRows, progress: Progress
) -> tuple[list[int], np.ndarray, np.ndarray]:
    """Write what the files say into the arrays.

    Returns:
        Good rows of each file; of each row what the split's column says; what the dense features (D,) are less.
    """
    expected = max(1, sum(map(estimate_rows, files)))
    counts, folds, offset, checker = [], [np.empty(0, np.uint8)], None, RowChecker(schema, bad)
    tables = len(schema.categorical) + len(schema.bucketise)
    with ClickWriter(folder, len(schema.dense), tables) as writer:
        for file in files:
            before = writer.rows
            for block in read_columns(file, schema):
                rows = checker.check(file, block)
                if len(rows.label) == 0:
                    continue
                if offset is None:
                    # so that 32 bits are enough for differences between large numbers, such as times in nanoseconds
                    offset = np.nan_to_num(rows.dense[0])
                categorical = np.zeros((len(rows.label), tables, 1), np.int32)
                categorical[:, : len(schema.categorical), 0] = rows.categorical.view(np.int32)
                writer.append(rows.dense - offset, categorical, rows.label)
                if schema.split.column is not None:
                    folds.append(rows.fold)
                progress(min(0.65, 0.65 * writer.rows / expected), f"{file.name}: {writer.rows:,} rows read")
            counts.append(writer.rows - before)
            if counts[-1] == 0:
                raise DataError("The file has no usable row.", fix="Give a file with rows.", file=file)
    return counts, np.concatenate(folds), offset


def split_rows(
    rows_of_files: list[int], folds: np.ndarray, split: Split, seed: int
) -> dict[str, np.ndarray] | dict[str, range]:
    """Row numbers of each split, in the order they are written."""
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
    """Put the rows of the arrays in this order."""
    for part in PARTS:
        path, other = folder / f"{part}.npy", folder / "ordered.npy"
        rows = np.load(path, mmap_mode="r")
        ordered = np.lib.format.open_memmap(other, "w+", rows.dtype, rows.shape)
        for first in range(0, len(order), ROWS_AT_ONCE):
            ordered[first : first + ROWS_AT_ONCE] = rows[order[first : first + ROWS_AT_ONCE]]
        del rows, ordered  # Windows replaces no mapped file
        other.replace(path)


def _blocks(folder: Path, part: str, stop: int | None = None):
    """Writable views of its first `stop` rows, block by block; each is unmapped before the next, to save memory."""
    stop = len(np.load(folder / f"{part}.npy", mmap_mode="r")) if stop is None else stop
    for first in range(0, stop, ROWS_AT_ONCE):
        array = np.load(folder / f"{part}.npy", mmap_mode="r+")
        yield array[first : min(first + ROWS_AT_ONCE, stop)]
        del array


def _dense_statistics(folder: Path, train_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation float64 (D,) of the training rows, leaving out NaN; (0, 1) for an empty column."""
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


Lookup = Callable[[np.ndarray], np.ndarray]
"""From values uint32 (n,) to table rows int32 (n,)."""


def _learn_tables(folder: Path, train_rows: int, schema: TableSchema) -> list[tuple[int, Lookup]]:
    """For each categorical column the rows of its table, and how its values become rows."""
    features, most = len(schema.categorical), schema.max_rows_per_table
    if schema.vocabulary == "hash":
        return [(most, partial(hashed_rows, num_rows=most))] * features
    counters = [ValueCounter(COUNTED_VALUES // features) for _ in schema.categorical]
    for block in _blocks(folder, "categorical", train_rows):
        for feature, counter in enumerate(counters):
            counter.add(block[:, feature, 0].view(np.uint32))
    vocabularies = [vocabulary_of(*counter.counts(), min_count=schema.min_count, max_rows=most) for counter in counters]
    return [(len(each) + 1, partial(rows_of, vocabulary=each)) for each in vocabularies]


def _bucket_edges(folder: Path, train_rows: int, schema: TableSchema, column: str) -> tuple[int, np.ndarray]:
    """The place of a dense column, and the edges between its buckets by the quantiles of the training rows."""
    place, buckets = schema.dense.index(column), schema.bucketise[column]
    values = np.load(folder / "dense.npy", mmap_mode="r")[:train_rows, place]
    known = values[~np.isnan(values)]
    return place, np.unique(np.quantile(known, np.arange(1, buckets) / buckets)) if len(known) else known

"""Prepare any table that a schema describes. The needed columns are held in memory."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa

from labkit.data.bad_rows import BadRows
from labkit.data.clicks.columns import GZIP_MAGIC, is_parquet, read_columns
from labkit.data.clicks.generate import signed_log
from labkit.data.clicks.prepared import SPLITS, ClickWriter, write_meta
from labkit.data.clicks.rows import Rows, usable_rows
from labkit.data.clicks.schema import TableSchema
from labkit.data.clicks.vocabulary import rows_of, vocabulary_of
from labkit.data.store import Progress
from labkit.errors import DataError, UserError
from labkit.hardware.sizes import size_text

MEMORY_PER_BYTE = {"text": 3, "packed": 15}
"""Memory for a byte of the file: the text, the columns cut out of it, and their copies as numbers; five
times as much for a packed file."""


def preflight_table(path: Path) -> str:
    """What preparing a table takes, in words.

    Raises:
        UserError: the table would not fit in memory.
    """
    with path.open("rb") as file:
        packed = file.read(2) == GZIP_MAGIC or is_parquet(path)
    needed_bytes = path.stat().st_size * MEMORY_PER_BYTE["packed" if packed else "text"]
    free_bytes = psutil.virtual_memory().available
    if needed_bytes > free_bytes:
        raise UserError(
            f"{path} needs about {size_text(needed_bytes)} of memory to prepare, and "
            f"{size_text(free_bytes)} is free: a table is held in memory. Use a part of it, or write it "
            "in Criteo's layout, which is streamed."
        )
    return f"at most {size_text(needed_bytes)} of memory ({size_text(free_bytes)} free)"


def prepare_table(
    folder: Path,
    path: Path,
    schema: TableSchema,
    *,
    name: str,
    fingerprint: str,
    seed: int,
    bad: BadRows,
    progress: Progress,
) -> None:
    """Write the prepared click log of one table into `folder`.

    Raises:
        DataError: bad rows, no rows, too few for a split, or training rows of one class only.
    """
    progress(0.0, f"{path.name}: read")
    rows = usable_rows(read_columns(path, schema), schema, bad)
    progress(0.5, "split")
    order = split_rows(rows, schema, seed, path)
    train = order["train"]
    clicks = int(rows.label[train].sum())
    if clicks in (0, len(train)):
        raise DataError(
            f"All {len(train):,} training rows have a {'positive' if clicks else 'negative'} label, "
            "so there is nothing to learn.",
            fix="Check the positive and negative values in the schema.",
            file=path,
            field=schema.label.column,
        )
    progress(0.6, "vocabulary")
    dense = rows.dense.copy()
    for column in schema.log:
        index = schema.dense.index(column)
        dense[:, index] = signed_log(dense[:, index])
    known = ~np.isnan(dense[train])
    count = np.maximum(known.sum(0), 1)
    mean = np.where(known, dense[train], 0).sum(0) / count
    deviation = np.sqrt(np.where(known, (dense[train] - mean) ** 2, 0).sum(0) / count)
    deviation[deviation < 1e-9] = 1.0
    dense = np.nan_to_num((dense - mean) / deviation, nan=0.0)

    of_dense = {column: rows.dense[:, index] for index, column in enumerate(schema.dense)}
    tables, table_rows = zip(
        *(look_up(column, train, schema) for column in rows.categorical),
        *(bucketise(of_dense[column], train, buckets) for column, buckets in schema.bucketise.items()),
        strict=True,
    )
    categorical = np.stack(tables, axis=1)[:, :, None]  # (N, F, 1)

    progress(0.9, "write")
    with ClickWriter(folder, dense_dim=len(schema.dense), num_tables=len(tables)) as writer:
        for split in SPLITS:
            writer.append(dense[order[split]], categorical[order[split]], rows.label[order[split]])
    write_meta(
        folder,
        name=name,
        dense_names=list(schema.dense),
        categorical_names=[*schema.categorical, *(f"{column} (bucket)" for column in schema.bucketise)],
        table_rows=table_rows,
        fingerprint=fingerprint,
        splits={split: len(order[split]) for split in SPLITS},
        info={
            "source": [str(path)],
            "schema": asdict(schema),
            "rows": len(rows.label),
            "base_rate": clicks / len(train),
            "skipped": bad.info(),
        },
    )


def split_rows(rows: Rows, schema: TableSchema, seed: int, path: Path) -> dict[str, np.ndarray]:
    """Row numbers of each split, in the order they are written.

    Raises:
        DataError: a split would be empty.
    """
    split, total = schema.split, len(rows.label)
    rng = np.random.default_rng(seed)
    if split.column is not None:
        test = np.flatnonzero(np.isin(rows.split_values, split.test_values))
    elif split.last_rows is not None:
        test = np.arange(max(0, total - split.last_rows), total)
    else:
        test = np.sort(rng.permutation(total)[: round(total * split.test)])
    left = np.setdiff1d(np.arange(total), test)
    if split.column is not None and split.validation_values:
        validation = np.flatnonzero(np.isin(rows.split_values, split.validation_values))
    else:
        validation = np.sort(rng.permutation(left)[: round(len(left) * split.validation)])
    order = {"train": np.setdiff1d(left, validation), "validation": validation, "test": test}
    sizes = {name: len(chosen) for name, chosen in order.items()}
    if min(sizes.values()) == 0:
        raise DataError(
            f"{total} usable rows leave a split empty ({sizes}).",
            fix="Give more rows, or change [split] in the schema.",
            file=path,
        )
    return order


def look_up(column: pa.DictionaryArray, train: np.ndarray, schema: TableSchema) -> tuple[np.ndarray, int]:
    """Table rows int32 (N,) of a column by the vocabulary of its training rows, and the table's size."""
    codes = column.indices.to_numpy()
    counts = np.bincount(codes[train], minlength=len(column.dictionary))
    values = column.dictionary.to_numpy(zero_copy_only=False)
    vocabulary = vocabulary_of(values, counts, min_count=schema.min_count, max_rows=schema.max_rows_per_table)
    return rows_of(values, vocabulary)[codes], len(vocabulary) + 1


def bucketise(values: np.ndarray, train: np.ndarray, buckets: int) -> tuple[np.ndarray, int]:
    """Table rows int32 (N,) by the quantiles of the training rows, 0 where missing, and the table's size."""
    known = values[train][~np.isnan(values[train])]
    if len(known) == 0:
        return np.zeros(len(values), dtype=np.int32), 1
    edges = np.unique(np.quantile(known, np.arange(1, buckets) / buckets))
    # A bucket ends just before its edge, so that a value that fills several quantiles (often 0) has its own.
    found = np.digitize(values, edges) + 1
    return np.where(np.isnan(values), 0, found).astype(np.int32), len(edges) + 2

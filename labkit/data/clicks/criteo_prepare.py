"""Prepare Criteo files of any size in bounded memory.

The text is parsed once, block by block, into the prepared arrays: logarithms and NaN for the dense
features, for the categories numbers that `BlockValues` explains. Then the training rows are read back to learn means
and vocabularies, and all rows are turned in place into what a model takes. Beyond the prepared arrays, disk is used for
the distinct values of each block.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np

from labkit.data.bad_rows import BadRows
from labkit.data.clicks.block_values import Block, BlockValues
from labkit.data.clicks.criteo import BLOCK_BYTES, CATEGORICAL_NAMES, DENSE_NAMES, line_blocks
from labkit.data.clicks.criteo_rows import read_block
from labkit.data.clicks.preflight import COUNTED_VALUES, estimate_rows
from labkit.data.clicks.prepared import ClickWriter, blocks, write_meta
from labkit.data.clicks.schema import CriteoSchema
from labkit.data.clicks.vocabulary import Hashing, ValueCounter, Vocabulary
from labkit.data.store import Progress
from labkit.errors import DataError

ROWS_AT_ONCE = 2**16

# Without fractions in the schema: of Kaggle's seven days the last is for validation and test, as in the
# reference DLRM and MLPerf, and so is the last file of several.
LAST_DAY = 1 / 7


def prepare_criteo(
    folder: Path,
    files: list[Path],
    schema: CriteoSchema,
    *,
    name: str,
    fingerprint: str,
    bad: BadRows,
    progress: Progress,
    block_bytes: int = BLOCK_BYTES,
) -> None:
    """Write the prepared click log of `files`, in the order of time, into `folder`.

    Raises:
        DataError: bad rows, a damaged file, too few rows, or training rows of one class only.
    """
    with BlockValues(folder / "block-values.u32") as block_values:
        rows_of_files = _parse(folder, block_values, files, bad, progress, block_bytes)
        info, table_rows, splits = _turn(folder, block_values, rows_of_files, schema, files, progress)
    write_meta(
        folder,
        name=name,
        dense_names=DENSE_NAMES,
        categorical_names=CATEGORICAL_NAMES,
        table_rows=table_rows,
        pooling_factor=1,
        fingerprint=fingerprint,
        splits=splits,
        info=info | {"skipped": bad.info()},
    )


def _turn(
    folder: Path,
    block_values: BlockValues,
    rows_of_files: list[int],
    schema: CriteoSchema,
    files: list[Path],
    progress: Progress,
) -> tuple[dict, list[int], dict[str, int]]:
    """Learn from the training rows, turn all rows in place; return what is to be told, table rows and splits."""
    rows = sum(rows_of_files)
    splits = split_by_time(rows_of_files, schema)
    if min(splits.values()) == 0:
        raise DataError(
            f"{rows} usable rows cannot be split into train, validation and test by time ({splits}).",
            fix="Use a larger part of the log: at least 14 rows.",
            file=files[0],
        )
    train = splits["train"]
    clicks = sum(int(block.sum()) for block in blocks(folder, "label", ROWS_AT_ONCE, 0, train))
    if clicks in (0, train):
        raise DataError(
            f"All {train:,} training rows have the label {int(clicks > 0)}, so there is nothing to learn.",
            fix="Use rows of both classes.",
            file=files[0],
        )
    progress(0.7, "dense features: mean and spread")
    mean, deviation = dense_statistics(folder, train)
    progress(0.75, "categories: vocabulary")
    tables, vocabulary_info = _learn_tables(folder, block_values, train, schema)
    for done, block in enumerate(blocks(folder, "dense", ROWS_AT_ONCE)):
        progress(0.85 + 0.05 * done * ROWS_AT_ONCE / rows, "dense features: standardise")
        standardise(block, mean, deviation)
    for block in block_values:
        progress(0.9 + 0.1 * block.start / rows, "categories: look up rows")
        numbers = _numbers(folder, block)
        rows_of_values = [table.lookup(values) for values, table in zip(block.values, tables, strict=True)]
        numbers[:] = np.concatenate(rows_of_values)[numbers + block.first_value]
    info = {
        "source": [str(file) for file in files],
        "schema": asdict(schema),
        "rows": rows,
        "base_rate": clicks / train,
        "vocabulary": vocabulary_info,
        "dense_mean": mean.tolist(),
        "dense_sd": deviation.tolist(),
    }
    return info, [table.num_rows for table in tables], splits


def _numbers(folder: Path, block: Block) -> np.ndarray:
    """The categories of a block's rows int32 (n, F), as they lie in the file."""
    return np.load(folder / "categorical.npy", mmap_mode="r+")[block.start : block.stop, :, 0]


def _parse(
    folder: Path, block_values: BlockValues, files: list[Path], bad: BadRows, progress: Progress, block_bytes: int
) -> list[int]:
    """Write what the text says into the arrays; return the number of good rows of each file."""
    expected = max(1, sum(estimate_rows(file) for file in files))
    counts = []
    with ClickWriter(folder, dense_dim=len(DENSE_NAMES), num_tables=len(CATEGORICAL_NAMES)) as writer:
        for file in files:
            before = writer.rows
            for lines in line_blocks(file, block_bytes):
                rows = read_block(lines, file=file, bad=bad)
                if rows is not None:
                    writer.append(rows.dense, rows.places[:, :, None], rows.label)
                    block_values.append(len(rows.label), rows.values)
                progress(min(0.7, 0.7 * writer.rows / expected), f"{file.name}: {writer.rows:,} rows read")
            counts.append(writer.rows - before)
            if counts[-1] == 0:
                raise DataError("The file has no usable row.", fix="Check that it is a Criteo click log.", file=file)
    return counts


def split_by_time(rows_of_files: list[int], schema: CriteoSchema) -> dict[str, int]:
    """Rows of train, validation and test, which follow each other in time."""
    rows = sum(rows_of_files)
    if schema.validation is not None or schema.test is not None:
        validation = round(rows * (LAST_DAY / 2 if schema.validation is None else schema.validation))
        test = round(rows * (LAST_DAY / 2 if schema.test is None else schema.test))
    else:
        last = rows_of_files[-1] if len(rows_of_files) > 1 else round(rows * LAST_DAY)
        validation, test = last // 2, last - last // 2
    return {"train": rows - validation - test, "validation": validation, "test": test}


def dense_statistics(folder: Path, train_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation float64 (D,) of the training rows, leaving out NaN; (0, 1) for an empty
    column."""
    count = total = squares = 0.0
    for block in blocks(folder, "dense", ROWS_AT_ONCE, 0, train_rows):
        values, missing = block.astype(np.float64), np.isnan(block)
        values[missing] = 0
        count = count + len(values) - missing.sum(0)
        total = total + values.sum(0)
        squares = squares + np.einsum("nd,nd->d", values, values)
    mean = total / np.maximum(count, 1)
    deviation = np.sqrt(np.maximum(squares / np.maximum(count, 1) - mean * mean, 0))
    return mean, np.where(deviation > 1e-6, deviation, 1.0)


def standardise(block: np.ndarray, mean: np.ndarray, deviation: np.ndarray) -> None:
    """In place: (x − mean) / deviation, and 0, the mean, for NaN; (n, D)."""
    block -= mean.astype(np.float32)
    block /= deviation.astype(np.float32)
    block[np.isnan(block)] = 0


def _learn_tables(
    folder: Path, block_values: BlockValues, train_rows: int, schema: CriteoSchema
) -> tuple[list[Vocabulary] | list[Hashing], dict]:
    if schema.vocabulary == "hash":
        tables = [Hashing(schema.max_rows_per_table)] * len(CATEGORICAL_NAMES)
        return tables, {"kind": "hash"}
    counters = [ValueCounter(COUNTED_VALUES // len(CATEGORICAL_NAMES)) for _ in CATEGORICAL_NAMES]
    for block in block_values:
        if block.start >= train_rows:
            break
        numbers = _numbers(folder, block)[: train_rows - block.start] + block.first_value
        counts = np.bincount(numbers.ravel(), minlength=sum(map(len, block.values)))
        for values, seen, counter in zip(block.values, np.split(counts, block.first_value[1:]), counters, strict=True):
            counter.add(values, seen)
    tables = [
        Vocabulary.of_counts(*counter.counts(), min_count=schema.min_count, max_rows=schema.max_rows_per_table)
        for counter in counters
    ]
    return tables, {
        "kind": "frequency",
        "largest_undercount": max(counter.undercount for counter in counters),
    }

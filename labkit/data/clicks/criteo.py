"""Criteo's click logs: which files there are, their rows block by block, and preparing them in bounded memory.

A line has 40 fields separated by tabs and no header: the label (0 or 1), 13 integers (some negative) and 26
categories of up to 8 hexadecimal digits; any but the label may be empty, for missing. The Kaggle data is
one file in the order of time, the Terabyte data one file a day, `day_0` to `day_23`.

The text is parsed once into the prepared arrays: logarithms and NaN for the dense features, the values themselves for
the categories. Then the training rows are read back to learn means and vocabularies, and all rows are turned in place
into what a model takes.
"""

from __future__ import annotations

import contextlib
import gzip
import re
import statistics
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.compute as pc

from labkit.data.bad_rows import BadRows
from labkit.data.clicks.columns import GZIP_DAMAGE, Columns, open_bytes, read_text
from labkit.data.clicks.generate import signed_log
from labkit.data.clicks.prepared import ClickWriter, blocks, write_meta
from labkit.data.clicks.rows import Checked
from labkit.data.clicks.schema import CriteoSchema, Label
from labkit.data.clicks.vocabulary import ValueCounter, hashed_rows, rows_of, vocabulary_of
from labkit.data.store import Progress, disk_full, free_disk_bytes
from labkit.errors import DataError
from labkit.hardware.sizes import size_text

DENSE_NAMES = [f"I{number}" for number in range(1, 14)]
CATEGORICAL_NAMES = [f"C{number}" for number in range(1, 27)]
FIELDS = ["label", *DENSE_NAMES, *CATEGORICAL_NAMES]
LABEL = Label("label", ("1",), ("0",))
DAY_FILE = re.compile(r"day_(\d+)(\.gz)?$")
HEXADECIMAL = "^[0-9a-fA-F]{0,8}$"
SAMPLE_BYTES = 2**20
ROW_BYTES = 4 * len(DENSE_NAMES) + 4 * len(CATEGORICAL_NAMES) + 1
"""A prepared row: float32 and int32 values, and the label."""
ROWS_AT_ONCE = 2**17
COUNTED_VALUES = 2**24
"""Distinct values that are counted at once, over all categorical features; 12 bytes each."""
LAST_DAY = 1 / 7
"""Without fractions in the schema: of Kaggle's seven days the last is for validation and test, as in the reference DLRM
and MLPerf, and so is the last file of several."""


def is_criteo(path: Path) -> bool:
    """Whether the first lines of a file look like Criteo's: 0 or 1, then about 39 tabs."""
    with open_bytes(path) as file:
        start = b""
        # in small readings, so that of a gzip file that is cut short the lines before the cut are seen
        with contextlib.suppress(*GZIP_DAMAGE):
            while len(start) < 2**16 and (chunk := file.read(512)):
                start += chunk
    lines = [line for line in start.split(b"\n")[:20] if line.strip()]
    if not lines or not re.match(rb"[^\t]{0,4}\t", lines[0]):
        return False
    # A bad line or two are for the parser to name, so the typical line decides.
    return abs(statistics.median(line.count(b"\t") for line in lines) - (len(FIELDS) - 1)) <= 1


def criteo_files(path: Path) -> list[Path]:
    """The file, or the day files of a folder in the order of the days.

    Raises:
        DataError: there is no day file in the folder, or an empty one.
    """
    files = [path]
    if path.is_dir():
        days: dict[int, Path] = {}
        for file in sorted(path.iterdir()):
            if match := DAY_FILE.match(file.name):
                days.setdefault(int(match[1]), file)
        files = [days[day] for day in sorted(days)]
        if not files:
            inside = ", ".join(sorted(file.name for file in path.iterdir() if file.is_file())[:3])
            raise DataError(
                "The folder has no file named day_0, day_1, … (or day_0.gz, …).",
                fix=f"Give the folder with Criteo's day files, or one file{f': here are {inside}' if inside else ''}.",
                file=path,
            )
    for file in files:
        if file.stat().st_size == 0:
            raise DataError("The file is empty.", fix="Download or make it again.", file=file)
    return files


def estimate_rows(file: Path) -> int:
    """Rows of a text file, packed or not, by the length of the lines and the packing at its beginning."""
    with open_bytes(file) as stream:
        try:
            start = stream.read(SAMPLE_BYTES)
        except GZIP_DAMAGE:  # reading it will say so, and where
            return 0
        size_bytes = file.stat().st_size
        if isinstance(stream, gzip.GzipFile):
            # One read-ahead more than was unpacked has been read from the file; small beside a sample.
            size_bytes *= len(start) / max(1, min(stream.fileobj.tell(), size_bytes))
    return round(size_bytes * max(1, start.count(b"\n")) / max(1, len(start)))


def read_criteo(file: Path, bad: BadRows) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield the good rows of a file, block by block; bad ones go to `bad`.

    Yields:
        dense float32 (n, 13), signed logarithms with NaN where missing; categories uint32 (n, 26), 0 where missing as
        in the reference DLRM; label bool (n,).

    Raises:
        DataError: the file is damaged, or a row is bad and `bad` says to stop.
    """
    for columns in read_text(file, FIELDS, FIELDS, "\t", quotes=False):
        yield _check(columns, bad)


def _check(columns: Columns, bad: BadRows) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    checked = Checked(columns)
    label = checked.label(LABEL)
    dense = np.empty((len(label), len(DENSE_NAMES)), np.float32)
    for index, name in enumerate(DENSE_NAMES):
        numbers = checked.numbers(name)
        wrong = (np.abs(numbers) >= 1e18) | (np.floor(numbers) < numbers)
        checked.fault(wrong, name, "The value {} is not an integer of up to 18 digits.")
        dense[:, index] = signed_log(numbers)
    categories = np.empty((len(label), len(CATEGORICAL_NAMES)), np.int64)
    for index, name in enumerate(CATEGORICAL_NAMES):
        column = columns.values[name].dictionary_encode()  # equal texts are looked at once
        fits = pc.match_substring_regex(column.dictionary, HEXADECIMAL).to_pylist()
        texts = column.dictionary.to_pylist()
        values = [int(text or "0", 16) if fit else -1 for text, fit in zip(texts, fits, strict=True)]
        categories[:, index] = np.array(values, np.int64)[column.indices.to_numpy()]
        wrong = categories[:, index] < 0
        checked.fault(wrong, name, "The category {} is not a number of up to 8 hexadecimal digits.")
    checked.report(bad)
    return dense[checked.usable], categories[checked.usable].astype(np.uint32), label[checked.usable]


def preflight(files: list[Path], folder: Path) -> str:
    """What preparing files into `folder` takes, in words.

    Raises:
        UserError: the prepared data would not fit on the disk.
    """
    rows, free_bytes = sum(map(estimate_rows, files)), free_disk_bytes(folder)
    if rows * ROW_BYTES > free_bytes:
        raise disk_full(folder, rows * ROW_BYTES)
    return f"about {rows:,} rows: {size_text(rows * ROW_BYTES)} of disk ({size_text(free_bytes)} free)"


def prepare_criteo(
    folder: Path,
    files: list[Path],
    schema: CriteoSchema,
    *,
    name: str,
    fingerprint: str,
    bad: BadRows,
    progress: Progress,
) -> None:
    """Write the prepared click log of `files`, in the order of time, into `folder`.

    Raises:
        DataError: bad rows, a damaged file, too few rows, or training rows of one class only.
    """
    rows_of_files = _parse(folder, files, bad, progress)
    rows, splits = sum(rows_of_files), split_by_time(rows_of_files, schema)
    if min(splits.values()) == 0:
        raise DataError(
            f"{rows} usable rows cannot be split into train, validation and test by time ({splits}).",
            fix="Use a larger part of the log: at least 14 rows.",
            file=files[0],
        )
    train = splits["train"]
    clicks = sum(int(block.sum()) for block in blocks(folder, "label", ROWS_AT_ONCE, train))
    if clicks in (0, train):
        raise DataError(
            f"All {train:,} training rows have the label {int(clicks > 0)}, so there is nothing to learn.",
            fix="Use rows of both classes.",
            file=files[0],
        )
    progress(0.7, "dense features: mean and spread")
    mean, deviation = dense_statistics(folder, train)
    progress(0.75, "categories: vocabulary")
    lookups, table_rows, vocabulary_info = _learn_tables(folder, train, schema)
    for done, block in enumerate(blocks(folder, "dense", ROWS_AT_ONCE)):
        progress(0.8 + 0.05 * done * ROWS_AT_ONCE / rows, "dense features: standardise")
        block -= mean.astype(np.float32)
        block /= deviation.astype(np.float32)
        block[np.isnan(block)] = 0
    for done, block in enumerate(blocks(folder, "categorical", ROWS_AT_ONCE)):
        progress(0.85 + 0.15 * done * ROWS_AT_ONCE / rows, "categories: look up rows")
        for feature, look_up in enumerate(lookups):
            block[:, feature, 0] = look_up(block[:, feature, 0].view(np.uint32))
    write_meta(
        folder,
        name=name,
        dense_names=DENSE_NAMES,
        categorical_names=CATEGORICAL_NAMES,
        table_rows=table_rows,
        fingerprint=fingerprint,
        splits=splits,
        info={
            "source": [str(file) for file in files],
            "schema": asdict(schema),
            "rows": rows,
            "base_rate": clicks / train,
            "vocabulary": vocabulary_info,
            "dense_mean": mean.tolist(),
            "dense_sd": deviation.tolist(),
            "skipped": bad.info(),
        },
    )


def _parse(folder: Path, files: list[Path], bad: BadRows, progress: Progress) -> list[int]:
    """Write what the text says into the arrays; return the number of good rows of each file."""
    expected = max(1, sum(map(estimate_rows, files)))
    counts = []
    with ClickWriter(folder, dense_dim=len(DENSE_NAMES), num_tables=len(CATEGORICAL_NAMES)) as writer:
        for file in files:
            before = writer.rows
            for dense, categories, label in read_criteo(file, bad):
                writer.append(dense, categories.view(np.int32)[:, :, None], label)
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
    """Mean and standard deviation float64 (D,) of the training rows, leaving out NaN; (0, 1) for an empty column."""
    count = total = squares = 0.0
    for block in blocks(folder, "dense", ROWS_AT_ONCE, train_rows):
        values, missing = block.astype(np.float64), np.isnan(block)
        values[missing] = 0
        count = count + len(values) - missing.sum(0)
        total = total + values.sum(0)
        squares = squares + np.einsum("nd,nd->d", values, values)
    mean = total / np.maximum(count, 1)
    deviation = np.sqrt(np.maximum(squares / np.maximum(count, 1) - mean * mean, 0))
    return mean, np.where(deviation > 1e-6, deviation, 1.0)


Lookup = Callable[[np.ndarray], np.ndarray]
"""From values uint32 (n,) to table rows int32 (n,)."""


def _learn_tables(folder: Path, train_rows: int, schema: CriteoSchema) -> tuple[list[Lookup], list[int], dict]:
    """For each categorical feature how its values become rows, and of how many; and what is to be told of it."""
    features, most = len(CATEGORICAL_NAMES), schema.max_rows_per_table
    if schema.vocabulary == "hash":
        return [partial(hashed_rows, num_rows=most)] * features, [most] * features, {"kind": "hash"}
    counters = [ValueCounter(COUNTED_VALUES // features) for _ in CATEGORICAL_NAMES]
    for block in blocks(folder, "categorical", ROWS_AT_ONCE, train_rows):
        for feature, counter in enumerate(counters):
            counter.add(block[:, feature, 0].view(np.uint32))
    vocabularies = [vocabulary_of(*counter.counts(), min_count=schema.min_count, max_rows=most) for counter in counters]
    info = {"kind": "frequency", "largest_undercount": max(counter.undercount for counter in counters)}
    return [partial(rows_of, vocabulary=each) for each in vocabularies], [len(each) + 1 for each in vocabularies], info

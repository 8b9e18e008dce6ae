"""The layout of Criteo's click logs: which files there are, and their rows block by block.

A line has 40 fields separated by tabs and no header: the label (0 or 1), 13 integers (some negative) and 26
categories of up to 8 hexadecimal digits; any but the label may be empty, for missing. The Kaggle data is
one file in the order of time, the Terabyte data one file a day, `day_0` to `day_23`.
"""

from __future__ import annotations

import contextlib
import gzip
import re
import statistics
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.compute as pc

from labkit.data.bad_rows import BadRows
from labkit.data.clicks.columns import GZIP_DAMAGE, Columns, open_bytes, read_text
from labkit.data.clicks.generate import signed_log
from labkit.data.clicks.rows import Checked
from labkit.data.clicks.schema import Label
from labkit.errors import DataError

DENSE_NAMES = [f"I{number}" for number in range(1, 14)]
CATEGORICAL_NAMES = [f"C{number}" for number in range(1, 27)]
FIELDS = ["label", *DENSE_NAMES, *CATEGORICAL_NAMES]
LABEL = Label("label", ("1",), ("0",))
DAY_FILE = re.compile(r"day_(\d+)(\.gz)?$")
HEXADECIMAL = "^[0-9a-fA-F]{0,8}$"

SAMPLE_BYTES = 2**20


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
        yield check_criteo(columns, bad)


def check_criteo(columns: Columns, bad: BadRows) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """As `read_criteo` yields them."""
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

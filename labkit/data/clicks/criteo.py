"""The layout of Criteo's click logs: which files there are, and their lines in blocks of bounded size.

A line has 40 fields separated by tabs and no header: the label (0 or 1), 13 integers (some negative) and 26
categories of up to 8 hexadecimal digits; any but the label may be empty, for missing. The Kaggle data is
one file in the order of time, the Terabyte data one file a day, `day_0` to `day_23`.
"""

from __future__ import annotations

import contextlib
import gzip
import re
import statistics
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NoReturn

import numpy as np

from labkit.errors import DataError

DENSE_NAMES = [f"I{number}" for number in range(1, 14)]
CATEGORICAL_NAMES = [f"C{number}" for number in range(1, 27)]
FIELDS = ["label", *DENSE_NAMES, *CATEGORICAL_NAMES]

HEX_DIGITS = np.full(256, 255, dtype=np.uint8)
"""The value of each hexadecimal digit; 255 for any other byte."""
for _character in b"0123456789abcdefABCDEF":
    HEX_DIGITS[_character] = int(chr(_character), 16)

BLOCK_BYTES = 4 * 2**20
"""Smaller blocks are read faster, as their distinct values stay in the caches, but repeat more of them."""
LONGEST_LINE_BYTES = 2**20
"""A Criteo line has a few hundred bytes; without a line end in this many the file is something else."""

DAY_FILE = re.compile(r"day_(\d+)(\.gz)?$")
GZIP_MAGIC = b"\x1f\x8b"
GZIP_DAMAGE = (EOFError, zlib.error, gzip.BadGzipFile)
"""What reading a gzip file raises: cut short, damaged, a wrong sum or other bytes after its end."""


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
        DataError: there is no such file, or no day file in the folder, or an empty one.
    """
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
    else:
        files = [path]
    for file in files:
        if file.stat().st_size == 0:
            raise DataError("The file is empty.", fix="Download or make it again.", file=file)
    return files


def open_bytes(path: Path) -> BinaryIO:
    """Open a file for reading, unpacking gzip, which is known by its first bytes and not by its name."""
    try:
        with path.open("rb") as file:
            packed = file.read(2) == GZIP_MAGIC
    except FileNotFoundError:
        raise DataError("There is no such file.", fix="Check the path.", file=path) from None
    return gzip.open(path, "rb") if packed else path.open("rb")


@dataclass(frozen=True)
class Lines:
    """Consecutive lines of a file."""

    text: bytes
    """With all line ends, but perhaps the last."""
    first: int
    """The number of the first line, from 1."""
    count: int


def line_blocks(path: Path, block_bytes: int = BLOCK_BYTES) -> Iterator[Lines]:
    """Yield whole lines, about `block_bytes` at a time; empty lines at the end are left out.

    Raises:
        DataError: a gzip file that is cut short or damaged, or a line that never ends.
    """
    line, rest = 1, b""
    with open_bytes(path) as file:
        while True:
            chunk, cut_off = _read(file, block_bytes)
            if cut_off:
                raise truncated(path, line + (rest + chunk).count(b"\n"), cut_off) from cut_off
            text = rest + chunk
            # Line ends at the end of a block wait for the next: there they may turn out to be the file's end.
            content = len(text.rstrip(b"\r\n"))
            cut = text.rfind(b"\n", 0, content) + 1 if chunk else content
            if cut:
                lines = text.count(b"\n", 0, cut) + (not chunk)  # the last line has lost its end
                yield Lines(text[:cut], line, lines)
                line += lines
            rest = text[cut:]
            if not chunk:
                return
            if len(rest) - rest.count(b"\n") > LONGEST_LINE_BYTES + block_bytes:
                raise DataError(
                    f"The line does not end within {LONGEST_LINE_BYTES + block_bytes:,} bytes, "
                    "so this is not a click log.",
                    fix="Check that the path names a text file with one row a line.",
                    file=path,
                    line=line,
                )


def _read(file: BinaryIO, size: int) -> tuple[bytes, Exception | None]:
    """Up to `size` bytes, fewer at the end; where a gzip file breaks off, what comes before, and why."""
    if not isinstance(file, gzip.GzipFile):
        return file.read(size), None
    parts, left = [], size
    try:
        # in small readings: one that meets the break gives nothing of what it had unpacked
        while left and (part := file.read1(min(left, 2**13))):
            parts.append(part)
            left -= len(part)
    except GZIP_DAMAGE as error:
        return b"".join(parts), error
    return b"".join(parts), None


def raise_truncated(path: Path, error: Exception) -> NoReturn:
    """Raise the error for a gzip file that cannot be unpacked, with the line on which it breaks off."""
    for _ in line_blocks(path):
        pass
    raise truncated(path, 1, error) from error


def truncated(path: Path, line: int, error: Exception) -> DataError:
    """The error for a gzip file that cannot be unpacked past `line`."""
    return DataError(
        f"The gzip file is cut short or damaged ({error}).",
        fix=f"Download it again; `gzip -t {path}` tells whether it is whole. No --on-bad-row can read on from here.",
        file=path,
        line=line,
    )

"""Criteo's click logs: which files there are, and whether a file is one.

A line has 40 fields separated by tabs and no header: the label (0 or 1), 13 integers (some negative) and 26
categories of up to 8 hexadecimal digits; any but the label may be empty, for missing. The Kaggle data is
one file in the order of time, the Terabyte data one file a day, `day_0` to `day_23`.
"""

from __future__ import annotations

import contextlib
import re
import statistics
from pathlib import Path

from labkit.data.clicks.columns import GZIP_DAMAGE, open_bytes
from labkit.errors import DataError

DAY_FILE = re.compile(r"day_(\d+)(\.gz)?$")


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
    return abs(statistics.median(line.count(b"\t") for line in lines) - 39) <= 1


def criteo_files(path: Path) -> list[Path]:
    """The file, or the day files of a folder in the order of the days.

    Raises:
        DataError: there is no day file in the folder.
    """
    if not path.is_dir():
        return [path]
    days: dict[int, Path] = {}
    for file in sorted(path.iterdir()):
        if match := DAY_FILE.match(file.name):
            days.setdefault(int(match[1]), file)
    if not days:
        inside = ", ".join(sorted(file.name for file in path.iterdir() if file.is_file())[:3])
        raise DataError(
            "The folder has no file named day_0, day_1, … (or day_0.gz, …).",
            fix=f"Give the folder with Criteo's day files, or one file{f': here are {inside}' if inside else ''}.",
            file=path,
        )
    return [days[day] for day in sorted(days)]

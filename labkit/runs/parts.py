"""Rows that end up in numbered Parquet parts, each whole or absent."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from labkit.runs.atomic import disk_full_as_user_error

METRICS = pa.schema(
    [
        ("step", pa.int64()),
        ("wall_s", pa.float64()),
        ("train_s", pa.float64()),
        ("samples", pa.int64()),
        ("name", pa.string()),
        ("value", pa.float64()),
    ]
)
TELEMETRY = pa.schema(
    [
        ("time_ns", pa.int64()),
        ("device", pa.string()),
        ("scope", pa.string()),
        ("pid", pa.int64()),
        ("counter", pa.string()),
        ("value", pa.float64()),
        ("unit", pa.string()),
        ("source", pa.string()),
        ("note", pa.string()),
    ]
)


class PartWriter:
    """Collects rows and writes them as `part-00000.parquet`, `part-00001.parquet`, … by write and rename."""

    def __init__(self, folder: Path, schema: pa.Schema, *, max_rows: int = 50_000, max_age_s: float = 5.0):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.schema, self.max_rows, self.max_age_s = folder, schema, max_rows, max_age_s
        self.next_number = max((part_numbers(path)[-1] for path in folder.glob("part-*.parquet")), default=-1) + 1
        self._rows: list[dict[str, Any]] = []
        self._flushed_at = time.monotonic()
        pa.array([])  # the first array may import pandas, half a second that no run's clock is to be charged with

    def append(self, row: dict[str, Any]) -> None:
        """Take one row; write a part when enough rows, or rows old enough, have come together."""
        self._rows.append(row)
        if len(self._rows) >= self.max_rows or time.monotonic() - self._flushed_at >= self.max_age_s:
            self.flush()

    def flush(self) -> None:
        """Write what has been collected as one part."""
        self._flushed_at = time.monotonic()
        if not self._rows:
            return
        write_part(pa.Table.from_pylist(self._rows, schema=self.schema), part_path(self.folder, self.next_number))
        self.next_number += 1
        self._rows = []


def write_part(table: pa.Table, path: Path, *, compression_level: int = 1) -> None:
    """Write a part, whole or not at all; zstd at `compression_level`.

    Raises:
        UserError: the disk is full.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with disk_full_as_user_error(path.parent):
            pq.write_table(table, temporary, compression="zstd", compression_level=compression_level)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def part_path(folder: Path, first: int, last: int | None = None) -> Path:
    """Where part number `first` is, or the one that parts `first` to `last` were merged into."""
    return folder / (f"part-{first:05d}.parquet" if last is None else f"part-{first:05d}-{last:05d}.parquet")


def part_numbers(path: Path) -> range:
    """The numbers of the parts that a file holds: its own, or for `part-00000-00059.parquet` all that were merged."""
    first, _, last = path.stem.removeprefix("part-").partition("-")
    return range(int(first), int(last or first) + 1)


class _WithoutPandas:
    """A finder of modules that finds no pandas; pyarrow does not understand the usual None in sys.modules."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("pyarrow goes without pandas in this process", name=name)


def spare_pandas() -> None:
    """Let pyarrow go without pandas in this process, which it would import with its first array: half a second.

    For processes that are ours from their first line on: `to_pandas` is then not to be had in them.
    """
    finder = _WithoutPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([])
    finally:
        sys.meta_path.remove(finder)


def readable_parts(folder: Path) -> tuple[list[Path], list[Path]]:
    """The parts of a folder, in order: those that are whole Parquet files, and those that are not.

    A part that was merged into another is left out: it stays a while for those who are about to read it.
    """
    whole, broken = [], []
    paths = sorted(folder.glob("part-*.parquet"), key=lambda path: part_numbers(path)[0])
    merged = {number for path in paths if len(numbers := part_numbers(path)) > 1 for number in numbers}
    for path in paths:
        if len(numbers := part_numbers(path)) == 1 and numbers[0] in merged:
            continue
        try:
            file = path.open("rb")
        except FileNotFoundError:
            continue  # merged into another since it was listed
        with file:
            size = file.seek(0, os.SEEK_END)
            head_and_tail = b""
            if size >= 12:
                file.seek(0)
                head_and_tail = file.read(4)
                file.seek(-4, os.SEEK_END)
                head_and_tail += file.read(4)
        (whole if head_and_tail == b"PAR1PAR1" else broken).append(path)
    return whole, broken

"""Rows that end up in numbered Parquet parts, each whole or absent; of a long recording, many are merged into one."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from labkit.runs.atomic import disk_full_as_user_error, temporary_of
from labkit.runs.notes import note_left_out


def _schema(optional: str, **types: pa.DataType) -> pa.Schema:
    """Columns of these types, of which the optional ones may be null."""
    return pa.schema([pa.field(name, kind, nullable=name in optional.split()) for name, kind in types.items()])


_WHOLE, _NUMBER, _TEXT = pa.int64(), pa.float64(), pa.string()
METRICS = _schema("value", step=_WHOLE, wall_s=_NUMBER, train_s=_NUMBER, samples=_WHOLE, name=_TEXT, value=_NUMBER)
TELEMETRY = _schema(
    "pid value unit source note",
    time_ns=_WHOLE, device=_TEXT, scope=_TEXT, pid=_WHOLE, counter=_TEXT, value=_NUMBER, unit=_TEXT, source=_TEXT,
    note=_TEXT,
)  # fmt: skip


class PartWriter:
    """Collects rows and writes them as `part-00000.parquet`, `part-00001.parquet`, … by write and rename."""

    def __init__(self, folder: Path, schema: pa.Schema, *, max_rows: int = 50_000, max_age_s: float = 5.0):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.schema, self.max_rows, self.max_age_s = folder, schema, max_rows, max_age_s
        self.next_number = max((part_numbers(path)[-1] for path in part_files(folder)), default=-1) + 1
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


PARTS = 60
"""So many small parts make a large one: five minutes of samples."""
LEVEL = 9
"""Of zstd: a large part is written once in a while, and may take its time."""


class MergingPartWriter(PartWriter):
    """A `PartWriter` that writes in a thread of its own, and merges its parts, sorted so that a series lies together.

    Small parts that were merged stay until the next merge, and readers leave them out: whoever has just listed them
    can still open them.
    """

    def __init__(self, folder: Path, schema: pa.Schema, *, sort_by: Sequence[str], parts: int = PARTS, **options):
        super().__init__(folder, schema, **options)
        self._sort_by, self._parts = [(name, "ascending") for name in sort_by], parts
        self._small: list[Path] = []
        self._merged: list[Path] = []
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="parts")
        self._writing: list[Future] = []

    def flush(self) -> None:
        """Hand what has been collected to the thread that writes it.

        Raises:
            UserError: the disk was full; the rows of that part are lost, those before it are not.
        """
        self._flushed_at = time.monotonic()
        if self._rows:
            rows, self._rows = self._rows, []
            self._writing.append(self._writer.submit(self._write, rows, part_path(self.folder, self.next_number)))
            self.next_number += 1
        while self._writing and self._writing[0].done():
            self._writing.pop(0).result()

    def settle(self) -> None:
        """Wait until all that was handed over is written; raises as `flush` does."""
        while self._writing:
            self._writing.pop(0).result()

    def close(self) -> None:
        """Write what is left, and drop what was merged before."""
        with self._writer:
            self.settle()
            self._drop_merged()
            self.flush()
            self.settle()

    def _write(self, rows: list[dict[str, Any]], path: Path) -> None:
        write_part(pa.Table.from_pylist(rows, schema=self.schema), path)
        self._small.append(path)
        if len(self._small) >= self._parts:
            self._merge()

    def _merge(self) -> None:
        self._drop_merged()
        table = pa.concat_tables(pq.read_table(path, schema=self.schema) for path in self._small)
        path = part_path(self.folder, part_numbers(self._small[0])[0], part_numbers(self._small[-1])[0])
        write_part(table.sort_by(self._sort_by), path, compression_level=LEVEL)
        self._merged, self._small = self._small, []

    def _drop_merged(self) -> None:
        for path in self._merged:
            path.unlink(missing_ok=True)
        self._merged = []


def write_part(table: pa.Table, path: Path, *, compression_level: int = 1) -> None:
    """Write a part, whole or not at all; zstd at `compression_level`.

    Raises:
        UserError: the disk is full.
    """
    temporary = temporary_of(path)
    try:
        with disk_full_as_user_error(path.parent):
            pq.write_table(
                table, temporary, compression="zstd", compression_level=compression_level, write_page_checksum=True
            )
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def part_path(folder: Path, first: int, last: int | None = None) -> Path:
    """Where part number `first` is, or the one that parts `first` to `last` were merged into."""
    return folder / (f"part-{first:05d}.parquet" if last is None else f"part-{first:05d}-{last:05d}.parquet")


NAME = re.compile(r"part-(\d{5,6})(?:-(\d{5,6}))?\.parquet")
"""At a part every few seconds, a million of them take two months."""


def part_numbers(path: Path) -> range:
    """The numbers of the parts that a file holds, such as 0 to 59 in `part-00000-00059.parquet`; else none."""
    named = NAME.fullmatch(path.name)
    return range(int(named[1]), int(named[2] or named[1]) + 1) if named else range(0)


def part_files(folder: Path) -> list[Path]:
    """The files of a folder that are named as parts, in order; another Parquet file, such as a copy, is noted."""
    found = sorted(folder.iterdir()) if folder.is_dir() else []
    paths = [path for path in found if path.suffix == ".parquet" and not path.name.startswith(".")]
    for path in paths:
        if not part_numbers(path):
            note_left_out(path, "it is not named as labkit names its parts; some program put a copy beside them")
    return sorted(filter(part_numbers, paths), key=lambda path: part_numbers(path)[0])


def spare_pandas() -> None:
    """Let pyarrow go without pandas in this process, which it would import with its first array: half a second.

    For processes that are ours from their first line on: `to_pandas` is then not to be had in them.
    """

    class NoPandas:  # pyarrow does not understand the usual None in sys.modules
        def find_spec(self, name: str, path: object = None, target: object = None) -> None:
            if name == "pandas":
                raise ModuleNotFoundError("pyarrow goes without pandas in this process", name=name)

    sys.meta_path.insert(0, finder := NoPandas())
    try:
        pa.array([])
    finally:
        sys.meta_path.remove(finder)


def current_parts(folder: Path) -> list[Path]:
    """The parts of a folder, in order, without those that stay a while although they were merged into another."""
    paths = part_files(folder)
    merged = [numbers for path in paths if len(numbers := part_numbers(path)) > 1]
    return [path for path in paths if len(own := part_numbers(path)) > 1 or not any(own[0] in each for each in merged)]


def read_part(path: Path, schema: pa.Schema, columns: Sequence[str] | None = None) -> pa.Table | None:
    """The rows of a part, whose pages are held against their checksums; None, with a note, for a damaged one.

    `schema` is that of its rows, or the same with words kept once (dictionaries); `columns` are those wanted, or all.

    Raises:
        FileNotFoundError: it was merged into another since it was listed.
    """
    names = list(columns or schema.names)
    try:
        words = [each.name for each in schema if pa.types.is_dictionary(each.type)]
        if words:  # to ask for one that is not there is an error
            has = pq.read_schema(path).names
            words = [name for name in words if name in has]
        options = {"pre_buffer": False, "page_checksum_verification": True, "read_dictionary": words}
        with pq.ParquetFile(path, **options) as file:
            table = file.read(columns=names, use_threads=False)
        for name in {*names} - {*table.column_names}:
            if schema.field(name).nullable:  # older parts may lack it
                table = table.append_column(name, pa.nulls(len(table), schema.field(name).type))
        table = table.select(names).cast(pa.schema([schema.field(name) for name in names]))
        table.validate(full=True)  # that text is UTF-8, for one
        return table
    except FileNotFoundError:
        raise
    except (pa.ArrowException, ValueError, KeyError, OSError) as error:
        note_left_out(path, f"this part is damaged ({str(error).splitlines()[0]})")
        return None

"""Read the columns that a schema needs from CSV, TSV or Parquet, with every value's place in the file."""

from __future__ import annotations

import codecs
import csv
import difflib
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from labkit.data.clicks.criteo import GZIP_DAMAGE, open_bytes, raise_truncated
from labkit.data.clicks.schema import TableSchema
from labkit.errors import DataError

PARQUET_MAGIC = b"PAR1"
SUBSTITUTE = "\x1a"
"""ASCII's own character for one that is invalid."""
csv.field_size_limit(2**31 - 1)  # in place of 128 KiB a field, which pyarrow's reader does not have


@dataclass(frozen=True)
class Columns:
    """Columns as read, every row of which still has to prove itself."""

    path: Path
    values: dict[str, pa.Array]
    """Text by column, trimmed, "" where missing; numbers stay numbers where the file has types."""
    records: np.ndarray
    """int64 (N,): the number of each row's record in the file, from 1, a header line included"""
    bad: list[tuple[int, str | None, str]]
    """(record, field, reason) of records with the wrong number of fields, or that are not UTF-8"""
    delimiter: str | None
    """Between fields; None for Parquet."""

    def lines(self, records: list[int]) -> dict[int, int]:
        """The line on which each record begins; they differ where a quoted field holds a line end."""
        if self.delimiter is None or not records:
            return {record: record for record in records}
        lines, last, begins = {}, max(records), 1
        with open_bytes(self.path) as file:
            text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline="")
            reader = csv.reader(text, delimiter=self.delimiter)
            for record, _ in enumerate(reader, 1):
                lines[record] = begins
                begins = reader.line_num + 1
                if record == last:
                    break
        return {record: lines[record] for record in records}


def is_parquet(path: Path) -> bool:
    with open_bytes(path) as file:
        try:
            return file.read(4) == PARQUET_MAGIC
        except GZIP_DAMAGE:
            return False


def delimiter_of(path: Path, separator: str | None) -> str:
    """The one character between fields; spaces around it are no part of it."""
    if separator is not None:
        return separator.strip(" ") or " "
    return "\t" if ".tsv" in path.suffixes else ","


def read_header(path: Path, delimiter: str) -> list[str]:
    """The column names in the first line of a text file, or of a Parquet file.

    Raises:
        DataError: an empty file, text that is not UTF-8, a damaged file.
    """
    with _reading(path):
        if is_parquet(path):
            with path.open("rb") as file:
                return pq.read_schema(file).names
        with open_bytes(path) as file:
            # no UnicodeDecodeError yet: it might be of a later line
            text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline="")
            line = text.readline(2**20)
    if not line.strip():
        raise DataError("The file is empty.", fix="Give a file with rows.", file=path)
    try:
        line.encode()
    except UnicodeEncodeError:
        raise DataError(
            "The text is not UTF-8.",
            fix=f"Convert the file, for example: iconv -f latin1 -t utf-8 {path.name} > utf8-{path.name}",
            file=path,
            line=1,
        ) from None
    return [name.strip() for name in next(csv.reader([line], delimiter=delimiter))]


def read_columns(path: Path, schema: TableSchema) -> Columns:
    """Read what the schema needs.

    Raises:
        DataError: an empty or damaged file, a missing or repeated column, text that is not UTF-8.
    """
    delimiter = delimiter_of(path, schema.separator)
    names = list(schema.names) if schema.names and not is_parquet(path) else read_header(path, delimiter)
    _check_names(path, names, schema)
    return _read_parquet(path, schema) if is_parquet(path) else _read_text(path, names, schema, delimiter)


def _check_names(path: Path, names: list[str], schema: TableSchema) -> None:
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise DataError(
            f"The header names {', '.join(map(repr, repeated))} more than once.",
            fix="Give every column a name of its own.",
            file=path,
            line=1,
        )
    for column in schema.columns:
        if column not in names:
            near = difflib.get_close_matches(column, names, 1, cutoff=0.7)
            meant = f"perhaps {near[0]!r} is meant; " if near else ""
            raise DataError(
                "The schema needs this column and the file does not have it.",
                fix=f"Correct the schema: {meant}the file has {', '.join(repr(name[:60]) for name in names[:20])}"
                + (f" and {len(names) - 20} more." if len(names) > 20 else "."),
                file=path,
                field=column,
            )


def _read_text(path: Path, names: list[str], schema: TableSchema, delimiter: str) -> Columns:
    bad: list[tuple[int, str | None, str]] = []

    def note(row: pa_csv.InvalidRow) -> str:
        bad.append(
            (
                row.number,
                None,
                f"The line has {row.actual_columns} fields; the header has {row.expected_columns}.",
            )
        )
        return "skip"

    header_lines = 0 if schema.names else 1
    with _reading(path), open_bytes(path) as file:
        text = _Utf8(file)
        table = pa_csv.read_csv(
            text,
            # One thread: otherwise the rows that do not parse come without their number.
            pa_csv.ReadOptions(use_threads=False, skip_rows=header_lines, column_names=names),
            pa_csv.ParseOptions(
                delimiter=delimiter,
                ignore_empty_lines=False,
                newlines_in_values=True,
                invalid_row_handler=note,
            ),
            pa_csv.ConvertOptions(
                column_types=dict.fromkeys(schema.columns, pa.string()),
                include_columns=schema.columns,
                strings_can_be_null=False,
            ),
        )
    values = {name: pc.utf8_trim_whitespace(table[name].combine_chunks()) for name in schema.columns}
    records = np.arange(1, table.num_rows + len(bad) + 1) + header_lines
    records = np.setdiff1d(records, [number for number, _, _ in bad])
    # Empty lines at the end of a file are read as rows of empty fields.
    filled = np.zeros(table.num_rows, dtype=bool)
    for column in values.values():
        filled |= pc.not_equal(column, "").to_numpy(zero_copy_only=False)
    rows = int(np.flatnonzero(filled)[-1]) + 1 if filled.any() else 0
    good = np.arange(table.num_rows) < rows
    for name, column in values.items() if text.was_mended else ():
        mended = pc.match_substring(column, SUBSTITUTE).to_numpy(zero_copy_only=False) & good
        what = "The text is not UTF-8 (if all is Latin-1, convert it: iconv -f latin1 -t utf-8)."
        bad.extend((int(record), name, what) for record in records[mended])
        good &= ~mended
    values = {name: column.filter(pa.array(good)) for name, column in values.items()}
    return Columns(path, values, records[good], bad, delimiter)


def _read_parquet(path: Path, schema: TableSchema) -> Columns:
    with _reading(path), path.open("rb") as file:
        table = pq.ParquetFile(file, page_checksum_verification=True).read(schema.columns)
    values = {}
    for name in schema.columns:
        column = table[name].combine_chunks()
        numeric = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
        if not (numeric and name in schema.dense):
            column = pc.utf8_trim_whitespace(pc.fill_null(_as_text(column, name, path), ""))
        values[name] = column
    return Columns(path, values, np.arange(1, table.num_rows + 1), [], None)


def _as_text(column: pa.Array, name: str, path: Path) -> pa.StringArray:
    try:
        return pc.cast(column, pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # bytes that are no text; lists and the like
        raise DataError(
            f"The column holds values of type {column.type}, which are neither texts nor numbers.",
            fix="Write one text or number a row, or leave the column out of the schema.",
            file=path,
            field=name,
        ) from None


class _Utf8(io.RawIOBase):
    """A file's bytes with `SUBSTITUTE` for each that is not UTF-8: the rows that have them are named afterwards."""

    was_mended = False

    def __init__(self, file: BinaryIO):
        self._file = file
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:
        text = ""
        while not text:
            # the decoder may hold back three bytes of a character, and gives them with the next ones
            read = self._file.read(len(buffer) - 3)
            text = self._decoder.decode(read, final=not read)
            if not read:
                break
        try:
            mended = text.encode()
        except UnicodeEncodeError:
            self.was_mended = True
            mended = re.sub("[\udc80-\udcff]", SUBSTITUTE, text).encode()
        buffer[: len(mended)] = mended
        return len(mended)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn what reading a damaged file raises, whatever its kind, into an error that names it.

    Raises:
        DataError: the file cannot be read.
    """
    try:
        yield
    except GZIP_DAMAGE as error:
        raise_truncated(path, error)
    except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # of the system, not of pyarrow
            raise
        if is_parquet(path):
            what, fix = f"The Parquet file is damaged ({error}).", "Make it again."
        else:
            what, fix = f"The file cannot be read: {error}.", "Check that it is CSV text."
        raise DataError(what, fix=fix, file=path) from error

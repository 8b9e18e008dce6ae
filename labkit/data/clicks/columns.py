"""Read the columns that a schema needs from CSV, TSV or Parquet, with every value's place in the file."""

from __future__ import annotations

import csv
import difflib
import io
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from labkit.data.clicks.criteo import open_bytes, raise_truncated
from labkit.data.clicks.schema import TableSchema
from labkit.errors import DataError

PARQUET_MAGIC = b"PAR1"


@dataclass(frozen=True)
class Columns:
    """Columns as read, every row of which still has to prove itself."""

    path: Path
    values: dict[str, pa.Array]
    """Text by column, trimmed, "" where missing; numbers stay numbers where the file has types."""
    records: np.ndarray
    """int64 (N,): the number of each row's record in the file, from 1, a header line included"""
    bad: list[tuple[int, str | None, str]]
    """(record, field, reason) of records with the wrong number of fields"""
    delimiter: str | None
    """Between fields; None for Parquet."""

    def lines(self, records: list[int]) -> dict[int, int]:
        """The line on which each record begins; they differ where a quoted field holds a line end."""
        if self.delimiter is None or not records:
            return {record: record for record in records}
        lines, last, begins = {}, max(records), 1
        with open_bytes(self.path) as file:
            reader = csv.reader(io.TextIOWrapper(file, encoding="utf-8-sig", newline=""), delimiter=self.delimiter)
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
        except (EOFError, zlib.error):
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
    if is_parquet(path):
        return _parquet(path).schema_arrow.names
    with open_bytes(path) as file:
        try:
            line = file.readline(2**20)
            if not line.strip():
                raise DataError("The file is empty.", fix="Give a file with rows.", file=path)
            return [name.strip() for name in next(csv.reader([line.decode("utf-8-sig")], delimiter=delimiter))]
        except (EOFError, zlib.error) as error:
            raise_truncated(path, error)
        except UnicodeDecodeError as error:
            raise _not_utf8(path, 1) from error


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
                fix=f"Correct the schema: {meant}the file has {', '.join(map(repr, names[:20]))}"
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
    try:
        with open_bytes(path) as file:
            table = pa_csv.read_csv(
                file,
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
    except (EOFError, zlib.error) as error:
        raise_truncated(path, error)
    except pa.ArrowInvalid as error:
        if "invalid UTF8" in str(error):
            raise _not_utf8(path, _line_that_is_not_utf8(path)) from error
        raise DataError(f"The file cannot be read: {error}.", fix="Check that it is CSV text.", file=path) from error
    values = {name: pc.utf8_trim_whitespace(table[name].combine_chunks()) for name in schema.columns}
    records = np.arange(1, table.num_rows + len(bad) + 1) + header_lines
    records = np.setdiff1d(records, [number for number, _, _ in bad])
    # Empty lines at the end of a file are read as rows of empty fields.
    filled = np.zeros(table.num_rows, dtype=bool)
    for column in values.values():
        filled |= pc.not_equal(column, "").to_numpy(zero_copy_only=False)
    rows = int(np.flatnonzero(filled)[-1]) + 1 if filled.any() else 0
    values = {name: column.slice(0, rows) for name, column in values.items()}
    return Columns(path, values, records[:rows], bad, delimiter)


def _read_parquet(path: Path, schema: TableSchema) -> Columns:
    table = _parquet(path).read(columns=schema.columns)
    values = {}
    for name in schema.columns:
        column = table[name].combine_chunks()
        numeric = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
        if not (numeric and name in schema.dense):
            column = pc.utf8_trim_whitespace(pc.fill_null(pc.cast(column, pa.string()), ""))
        values[name] = column
    return Columns(path, values, np.arange(1, table.num_rows + 1), [], None)


def _parquet(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except pa.ArrowInvalid as error:
        raise DataError(f"The Parquet file is damaged ({error}).", fix="Make it again.", file=path) from error


def _line_that_is_not_utf8(path: Path) -> int:
    with open_bytes(path) as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError:
                return number
    raise AssertionError(path)


def _not_utf8(path: Path, line: int) -> DataError:
    return DataError(
        "The text is not UTF-8.",
        fix=f"Convert the file, for example: iconv -f latin1 -t utf-8 {path.name} > utf8-{path.name}",
        file=path,
        line=line,
    )

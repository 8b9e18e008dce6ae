"""Read the columns that a schema needs from CSV, TSV or Parquet, with every value's place in the file."""

from __future__ import annotations

import codecs
import contextlib
import csv
import difflib
import gzip
import io
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from labkit.data.clicks.schema import TableSchema
from labkit.errors import DataError

PARQUET_MAGIC = b"PAR1"
GZIP_MAGIC = b"\x1f\x8b"
GZIP_DAMAGE = (EOFError, zlib.error, gzip.BadGzipFile)
"""What reading a gzip file raises: cut short, damaged, a wrong sum or other bytes after its end."""
BLOCK_BYTES = 4 * 2**20
"""Of text that is read at once; no line may be longer."""
NOT_UTF8 = "The text is not UTF-8 (if all is Latin-1, convert it: iconv -f latin1 -t utf-8)."
csv.field_size_limit(2**31 - 1)  # in place of 128 KiB a field, which pyarrow's reader does not have


Fault = tuple[int, str | None, str]
"""(record, field, reason)"""


@dataclass(frozen=True)
class Columns:
    """Consecutive rows as read, each of which still has to prove itself."""

    path: Path
    values: dict[str, pa.Array]
    """Text by column, trimmed, "" where missing; numbers stay numbers where the file has types."""
    records: np.ndarray
    """int64 (N,): the number of each row's record in the file, from 1, a header line included"""
    bad: list[Fault]
    """Records beside these that cannot be read."""
    delimiter: str | None
    """Between fields; None where no field is quoted, so that records are lines, and for Parquet."""

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


def open_bytes(path: Path) -> BinaryIO:
    """Open a file for reading, unpacking gzip, which is known by its first bytes and not by its name."""
    with path.open("rb") as file:
        packed = file.read(2) == GZIP_MAGIC
    return gzip.open(path, "rb") if packed else path.open("rb")


def is_parquet(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == PARQUET_MAGIC


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
    with reading(path):
        if is_parquet(path):
            with path.open("rb") as file:
                return pq.read_schema(file).names
        with open_bytes(path) as file:
            # no UnicodeDecodeError yet: it might be of a later line
            text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline="")
            line = text.readline(2**20)
    if not line.strip():
        raise DataError("The file is empty.", fix="Give a file with rows.", file=path)
    if _decoded(line.encode("utf-8", "surrogateescape")) is None:
        raise DataError(
            "The text is not UTF-8.",
            fix=f"Convert the file, for example: iconv -f latin1 -t utf-8 {path.name} > utf8-{path.name}",
            file=path,
            line=1,
        )
    return [name.strip() for name in next(csv.reader([line], delimiter=delimiter))]


def read_columns(path: Path, schema: TableSchema) -> Columns:
    """Read what the schema needs of a whole file.

    Raises:
        DataError: an empty or damaged file, a missing or repeated column, text that is not UTF-8.
    """
    delimiter = delimiter_of(path, schema.separator)
    names = list(schema.names) if schema.names and not is_parquet(path) else read_header(path, delimiter)
    _check_names(path, names, schema)
    if is_parquet(path):
        return _read_parquet(path, schema)
    blocks = list(read_text(path, names, schema.columns, delimiter, header_lines=0 if schema.names else 1))
    return Columns(
        path,
        {name: pa.concat_arrays([each.values[name] for each in blocks]) for name in schema.columns},
        np.concatenate([each.records for each in blocks]),
        [fault for each in blocks for fault in each.bad],
        delimiter,
    )


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


def read_text(
    path: Path, names: list[str], needed: list[str], delimiter: str, *, header_lines: int = 0, quotes: bool = True
) -> Iterator[Columns]:
    """Yield the rows of a text file, about `BLOCK_BYTES` at a time; empty lines at its end are left out.

    Raises:
        DataError: a damaged file, or a line that never ends.
    """
    wrong: dict[int, str] = {}  # records that are no rows, and why
    empty: list[int] = []  # records that are wrong, too, should any row come after them

    def note(row: pa_csv.InvalidRow) -> str:
        wrong[row.number] = f"The line has {row.actual_columns} fields, and should have {row.expected_columns}."
        return "skip"

    following = 1 + header_lines
    with reading(path), open_bytes(path) as file:
        if file.peek(3).startswith(codecs.BOM_UTF8):
            file.read(3)
        batches = pa_csv.open_csv(
            file,
            # One thread: otherwise the rows that do not parse come without their number.
            # Latin-1, for it names no row to the handler that is not text; `_as_text` makes UTF-8 of it.
            pa_csv.ReadOptions(
                use_threads=False,
                block_size=BLOCK_BYTES,
                skip_rows=header_lines,
                column_names=names,
                encoding="latin-1",
            ),
            pa_csv.ParseOptions(
                delimiter=delimiter,
                quote_char='"' if quotes else False,
                newlines_in_values=quotes,
                ignore_empty_lines=False,
                invalid_row_handler=note,
            ),
            pa_csv.ConvertOptions(
                column_types=dict.fromkeys(needed, pa.string()), include_columns=needed, strings_can_be_null=False
            ),
        )
        for batch in batches:
            values = {name: _as_text(column) for name, column in zip(needed, batch.columns, strict=True)}
            records = np.setdiff1d(np.arange(following, following + len(batch) + len(wrong)), list(wrong))[: len(batch)]
            following = max(following, *(records[-1:] + 1).tolist(), 0)
            filled = np.zeros(len(batch), bool)
            for column in values.values():
                if filled.all():
                    break
                filled |= pc.fill_null(pc.not_equal(column, ""), True).to_numpy(zero_copy_only=False)
            empty += records[~filled].tolist()
            last = max(records[filled][-1:].tolist(), default=0)
            wrong |= {record: "The line is empty." for record in empty if record < last}
            empty = [record for record in empty if record > last]
            bad: list[Fault] = [(record, None, wrong.pop(record)) for record in sorted(wrong) if record < following]
            for name, column in values.items():
                unread = column.is_null().to_numpy(zero_copy_only=False) & filled
                bad += [(record, name, NOT_UTF8) for record in records[unread].tolist()]
                filled &= ~unread
            kept = {name: column.filter(pa.array(filled)) for name, column in values.items()}
            yield Columns(path, kept, records[filled], bad, delimiter if quotes else None)
    bad = [(record, None, wrong[record]) for record in sorted(wrong)]
    nothing = dict.fromkeys(needed, pa.array([], pa.string()))
    yield Columns(path, nothing, np.empty(0, int), bad, delimiter if quotes else None)


def _as_text(column: pa.StringArray) -> pa.StringArray:
    """Trimmed texts, from those that were read as Latin-1; null where the bytes are not UTF-8."""
    if pc.all(pc.string_is_ascii(column)).as_py() is not False:
        return pc.utf8_trim_whitespace(column)
    return pa.array([_decoded(text.encode("latin-1")) for text in column.to_pylist()], pa.string())


def _decoded(content: bytes) -> str | None:
    try:
        return content.decode().strip()
    except UnicodeDecodeError:
        return None


def _read_parquet(path: Path, schema: TableSchema) -> Columns:
    with reading(path), path.open("rb") as file:
        table = pq.ParquetFile(file, page_checksum_verification=True).read(schema.columns)
    values = {}
    for name in schema.columns:
        column = table[name].combine_chunks()
        numeric = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
        if not (numeric and name in schema.dense):
            try:
                column = pc.utf8_trim_whitespace(pc.fill_null(pc.cast(column, pa.string()), ""))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # bytes that are no text; lists and the like
                raise DataError(
                    f"The column holds values of type {column.type}, which are neither texts nor numbers.",
                    fix="Write one text or number a row, or leave the column out of the schema.",
                    file=path,
                    field=name,
                ) from None
        values[name] = column
    return Columns(path, values, np.arange(1, table.num_rows + 1), [], None)


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn what reading a damaged file raises, whatever its kind, into an error that names it.

    Raises:
        DataError: the file cannot be read.
    """
    try:
        yield
    except GZIP_DAMAGE as error:
        raise DataError(
            f"The gzip file is cut short or damaged ({error}).",
            fix=f"Download it again; `gzip -t {path}` tells whether it is whole. No --on-bad-row can read on.",
            file=path,
            line=_lines_before_damage(path) + 1,
        ) from error
    except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # of the system, not of pyarrow
            raise
        if is_parquet(path):
            what, fix = f"The Parquet file is damaged ({error}).", "Make it again."
        else:
            what, fix = f"The file cannot be read: {error}.", "Check that it is text with one row a line."
        raise DataError(what, fix=fix, file=path) from error


def _lines_before_damage(path: Path) -> int:
    lines = 0
    with gzip.open(path) as file, contextlib.suppress(*GZIP_DAMAGE):
        # in small readings: one that meets the break gives nothing of what it had unpacked
        while part := file.read1(2**13):
            lines += part.count(b"\n")
    return lines

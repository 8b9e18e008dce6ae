"""Read the columns that a schema needs from CSV, TSV or Parquet, block by block, each row with its line."""

from __future__ import annotations

import codecs
import contextlib
import csv
import difflib
import gzip
import io
import re
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

PARQUET_MAGIC, GZIP_MAGIC = b"PAR1", b"\x1f\x8b"
GZIP_DAMAGE = (EOFError, zlib.error, gzip.BadGzipFile)
"""What reading a gzip file raises: cut short, damaged, a wrong sum or other bytes after its end."""
BLOCK_BYTES = 4 * 2**20
"""Of text that is read at once."""
LONGEST_BYTES = 2**26
"""No record may be longer."""
SAMPLE_BYTES = 2**20
csv.field_size_limit(LONGEST_BYTES)  # in place of 128 KiB a field, which pyarrow's reader does not have

Fault = tuple[int, str | None, str]
"""(line, field, reason)"""


@dataclass(frozen=True)
class Block:
    """Consecutive rows as read, each of which still has to prove itself."""

    values: dict[str, pa.Array]
    """Text by column, trimmed, "" where missing; numbers stay numbers where the file has types."""
    lines: np.ndarray
    """int64 (N,): the line on which each row begins, from 1; in Parquet the row's number"""
    faults: list[Fault]
    """Rows beside these that cannot be read."""


def open_bytes(path: Path) -> BinaryIO:
    """Open a file for reading, unpacking gzip, which is known by its first bytes and not by its name."""
    with path.open("rb") as file:
        packed = file.read(2) == GZIP_MAGIC
    return gzip.open(path, "rb") if packed else path.open("rb")


def is_parquet(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == PARQUET_MAGIC


def estimate_rows(path: Path) -> int:
    """Rows of a file; of text by the length of the lines and the packing at its beginning."""
    with reading(path):
        if is_parquet(path):
            return pq.read_metadata(path).num_rows
        with open_bytes(path) as file:
            start, size_bytes = file.read(SAMPLE_BYTES), path.stat().st_size
            if isinstance(file, gzip.GzipFile):
                # One read-ahead more than was unpacked has been read from the file; small beside a sample.
                size_bytes *= len(start) / max(1, min(file.fileobj.tell(), size_bytes))
    return round(size_bytes * max(1, start.count(b"\n")) / max(1, len(start)))


def read_header(path: Path, schema: TableSchema) -> list[str]:
    """The column names in the first line of a text file, or of a Parquet file.

    Raises:
        DataError: an empty file, text that is not UTF-8, a damaged file.
    """
    with reading(path):
        if is_parquet(path):
            with path.open("rb") as file:  # pyarrow opens no name that is not UTF-8
                return pq.read_schema(file).names
        with open_bytes(path) as file:
            line = re.split(rb"[\r\n]", file.read(SAMPLE_BYTES).removeprefix(codecs.BOM_UTF8), maxsplit=1)[0]
    if not line.strip():
        raise DataError("The file is empty.", fix="Give a file with rows.", file=path)
    try:
        return [name.strip() for name in next(csv.reader([line.decode()], delimiter=_delimiter(path, schema)))]
    except UnicodeDecodeError:
        fix = f"Convert the file, for example: iconv -f latin1 -t utf-8 {path.name} > utf8-{path.name}"
        raise DataError("The text is not UTF-8.", fix=fix, file=path, line=1) from None


def _delimiter(path: Path, schema: TableSchema) -> str:
    if schema.separator is not None:
        return schema.separator.strip(" ") or " "
    return "\t" if ".tsv" in path.suffixes else ","


def read_columns(path: Path, schema: TableSchema) -> Iterator[Block]:
    """Yield the rows of a file; empty lines are left out.

    Raises:
        DataError: an empty or damaged file, a missing or repeated column, a header that is not UTF-8.
    """
    with reading(path):
        if is_parquet(path):
            _check_names(path, read_header(path, schema), schema)
            yield from _read_parquet(path, schema)
            return
        names, line = list(schema.names) or read_header(path, schema), 1
        _check_names(path, names, schema)
        parser = _Parser(names, schema.columns, _delimiter(path, schema), quotes=schema.layout == "table")
        with open_bytes(path) as file:
            for text in _whole_records(path, file, parser.quotes):
                block = parser.parse(text.removeprefix(codecs.BOM_UTF8) if line == 1 else text, line)
                if line == 1 and not schema.names:
                    block = Block(
                        {name: each[1:] for name, each in block.values.items()}, block.lines[1:], block.faults
                    )
                yield block
                line += text.count(b"\n")


def _check_names(path: Path, names: list[str], schema: TableSchema) -> None:
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        what = f"The header names {', '.join(map(repr, repeated))} more than once."
        raise DataError(what, fix="Give every column a name of its own.", file=path, line=1)
    for column in schema.columns:
        if column not in names:
            near = difflib.get_close_matches(column, names, 1, cutoff=0.7)
            meant = f"perhaps {near[0]!r} is meant; " if near else ""
            fix = f"Correct the schema: {meant}the file has {', '.join(repr(name[:60]) for name in names[:20])}"
            fix += f" and {len(names) - 20} more." if len(names) > 20 else "."
            what = "The schema needs this column and the file does not have it."
            raise DataError(what, fix=fix, file=path, field=column)


def _whole_records(path: Path, file: BinaryIO, quotes: bool) -> Iterator[bytes]:
    """The text in parts that end with a record: after a line end, and an even number of quotes."""
    rest = b""
    while chunk := file.read(BLOCK_BYTES):
        rest += chunk
        cut = rest.rfind(b"\n") + 1
        odd = quotes and rest.count(b'"', 0, cut) % 2
        while odd:
            before = rest.rfind(b"\n", 0, rest.rfind(b'"', 0, cut)) + 1
            odd, cut = (odd + rest.count(b'"', before, cut)) % 2, before
        if cut:
            yield rest[:cut]
            rest = rest[cut:]
        elif len(rest) > LONGEST_BYTES:
            what = f"The file has a line, or a text in quotes, of over {LONGEST_BYTES >> 20} MiB."
            raise DataError(what, fix="Check that it is text with one row a line.", file=path)
    if rest:
        yield rest


@dataclass(frozen=True)
class _Parser:
    names: list[str]
    needed: list[str]
    delimiter: str
    quotes: bool

    def parse(self, text: bytes, first_line: int) -> Block:
        """The rows of a text whose first line has this number."""
        try:
            table = pa_csv.read_csv(
                pa.BufferReader(text),
                pa_csv.ReadOptions(use_threads=False, block_size=len(text) + 1, column_names=self.names),
                pa_csv.ParseOptions(
                    delimiter=self.delimiter, quote_char='"' if self.quotes else False, newlines_in_values=self.quotes
                ),
                pa_csv.ConvertOptions(
                    column_types=dict.fromkeys(self.needed, pa.string()), include_columns=self.needed
                ),
            )
        except pa.ArrowInvalid:  # some row is bad
            return self._parse_slowly(text, first_line)
        if table.num_rows != text.count(b"\n") + (not text.endswith(b"\n")):  # a row is not a line
            return self._parse_slowly(text, first_line)
        values = {name: pc.utf8_trim_whitespace(table[name].combine_chunks()) for name in self.needed}
        return Block(values, np.arange(first_line, first_line + table.num_rows), [])

    def _parse_slowly(self, text: bytes, first_line: int) -> Block:
        """The same row by row, which tells the line of each and what is bad."""
        lines = io.StringIO(text.decode("utf-8", "surrogateescape"), newline="")
        quoting = csv.QUOTE_MINIMAL if self.quotes else csv.QUOTE_NONE
        reader, begins, places = csv.reader(lines, delimiter=self.delimiter, quoting=quoting), first_line, []
        places = [self.names.index(name) for name in self.needed]
        rows: list[list[str]] = []
        lines_of_rows: list[int] = []
        faults: list[Fault] = []
        for row in reader:
            line, begins = begins, first_line + reader.line_num
            if len(row) != len(self.names):
                if row:
                    reason = f"The line has {len(row)} fields, and should have {len(self.names)}."
                    faults.append((line, None, reason))
                continue
            values = [row[place].strip() for place in places]
            if not_text := [name for name, value in zip(self.needed, values, strict=True) if not _is_utf8(value)]:
                reason = "The text is not UTF-8 (if all is Latin-1, convert it: iconv -f latin1 -t utf-8)."
                faults.append((line, not_text[0], reason))
                continue
            rows.append(values)
            lines_of_rows.append(line)
        columns = zip(*rows, strict=True) if rows else [()] * len(places)
        arrays = (pa.array(column, pa.string()) for column in columns)
        return Block(dict(zip(self.needed, arrays, strict=True)), np.array(lines_of_rows, int), faults)


def _is_utf8(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _read_parquet(path: Path, schema: TableSchema) -> Iterator[Block]:
    following = 1
    with path.open("rb") as file:
        for batch in pq.ParquetFile(file, page_checksum_verification=True).iter_batches(columns=schema.columns):
            values = {}
            for name in schema.columns:
                column = batch[name]
                numeric = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
                if not (numeric and name in schema.dense):
                    try:
                        column = pc.utf8_trim_whitespace(pc.fill_null(pc.cast(column, pa.string()), ""))
                    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # bytes that are no text; lists and the like
                        what = f"The column holds values of type {column.type}, which are neither texts nor numbers."
                        fix = "Write one text or number a row, or leave the column out of the schema."
                        raise DataError(what, fix=fix, file=path, field=name) from None
                values[name] = column
            yield Block(values, np.arange(following, following + batch.num_rows), [])
            following += batch.num_rows


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn what reading a damaged file raises, whatever its kind, into an error that names it.

    Raises:
        DataError: the file cannot be read.
    """
    try:
        yield
    except GZIP_DAMAGE as error:
        what = f"The gzip file is cut short or damaged ({error})."
        fix = f"Download it again; `gzip -t {path}` tells whether it is whole. No --on-bad-row can read on."
        raise DataError(what, fix=fix, file=path) from error
    except (pa.ArrowException, csv.Error, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # of the system, not of pyarrow
            raise
        if is_parquet(path):
            what, fix = f"The Parquet file is damaged ({error}).", "Make it again."
        else:
            what, fix = f"The file cannot be read: {error}.", "Check that it is text with one row a line."
        raise DataError(what, fix=fix, file=path) from error

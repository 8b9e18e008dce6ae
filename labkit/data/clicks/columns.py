"""Read the columns that a schema needs from CSV, TSV or Parquet, in blocks; each row has its line number."""

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
"""Raised for a gzip file that is cut short or damaged, has a wrong checksum, or has other bytes after its end."""
BLOCK_BYTES = 4 * 2**20
"""Bytes of text read at once."""
LONGEST_BYTES = 2**26
"""Longest record allowed."""
SAMPLE_BYTES = 2**20
csv.field_size_limit(LONGEST_BYTES)  # not 128 KiB per field, a limit that pyarrow's reader does not have

NOT_UTF8 = re.compile("[\ud800-\udfff]")
"""What bytes that are not UTF-8 become when they are decoded with "surrogateescape"."""

Fault = tuple[int, str | None, str]
"""(line, field, reason)"""


@dataclass(frozen=True)
class Block:
    """Consecutive rows as read, before they are checked."""

    values: dict[str, pa.Array]
    """Values by column: trimmed text, "" where missing; numbers where the file has types"""
    lines: np.ndarray
    """int64 (N,): the line on which each row begins, from 1; in Parquet the number of the row"""
    faults: list[Fault]
    """Further rows, which cannot be read"""


def open_bytes(path: Path) -> BinaryIO:
    """Open a file for reading and unpack gzip, which is recognised by its first bytes, whatever its name."""
    with path.open("rb") as file:
        packed = file.read(2) == GZIP_MAGIC
    return gzip.open(path, "rb") if packed else path.open("rb")


def is_parquet(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == PARQUET_MAGIC


def estimate_rows(path: Path) -> int:
    """The number of rows of a file; for text an estimate from the line lengths and the compression at its beginning."""
    with reading(path):
        if is_parquet(path):
            return pq.read_metadata(path).num_rows
        with open_bytes(path) as file:
            start, size_bytes = file.read(SAMPLE_BYTES), path.stat().st_size
            if isinstance(file, gzip.GzipFile):
                # gzip has read a little further ahead than it has unpacked; the error is small for a sample of 1 MiB
                size_bytes *= len(start) / max(1, min(file.fileobj.tell(), size_bytes))
    return round(size_bytes * max(1, start.count(b"\n")) / max(1, len(start)))


def read_header(path: Path, schema: TableSchema) -> list[str]:
    """The column names in the first line of a text file, or of a Parquet file."""
    with reading(path):
        if is_parquet(path):
            with path.open("rb") as file:  # pyarrow does not open names that are not UTF-8
                return pq.read_schema(file).names
        with open_bytes(path) as file:
            line = re.split(rb"[\r\n]", file.read(SAMPLE_BYTES).removeprefix(codecs.BOM_UTF8), maxsplit=1)[0]
    if not line.strip():
        raise DataError("The file is empty.", fix="Give a file with rows.", file=path)
    try:
        return [name.strip() for name in next(csv.reader([line.decode()], delimiter=_delimiter(path, schema)))]
    except UnicodeDecodeError:
        if path.suffix in (".gz", ".parquet") or re.search(rb"[\0-\x08\x0e-\x1f]", line):
            what = "The first line is not text: the file is damaged, or is neither text, gzip nor Parquet."
            raise DataError(what, fix="Download it again, or generate it again.", file=path, line=1) from None
        fix = f"Convert the file, for example: iconv -f latin1 -t utf-8 {path.name} > utf8-{path.name}"
        raise DataError("The text is not UTF-8.", fix=fix, file=path, line=1) from None


def _delimiter(path: Path, schema: TableSchema) -> str:
    if schema.separator is not None:
        return schema.separator.strip(" ") or " "
    return "\t" if ".tsv" in path.suffixes else ","


def read_columns(path: Path, schema: TableSchema) -> Iterator[Block]:
    """Yield the rows of a file; empty lines are skipped."""
    with reading(path):
        if is_parquet(path):
            _check_names(path, read_header(path, schema), schema)
            yield from _read_parquet(path, schema)
            return
        names = list(schema.names) or read_header(path, schema)
        _check_names(path, names, schema)
        delimiter, quotes = _delimiter(path, schema), schema.layout == "table"
        with open_bytes(path) as file:
            for line, text in _whole_records(path, file, delimiter if quotes else None):
                block = _parse(text, line, names, schema.columns, delimiter, quotes)
                if line == 1 and not schema.names:
                    values = {name: each[1:] for name, each in block.values.items()}
                    block = Block(values, block.lines[1:], block.faults)
                yield block


def _check_names(path: Path, names: list[str], schema: TableSchema) -> None:
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        what = f"The header has {', '.join(map(repr, repeated))} more than once."
        raise DataError(what, fix="Give each column a unique name.", file=path, line=1)
    for column in schema.columns:
        if column not in names:
            near = difflib.get_close_matches(column, names, 1, cutoff=0.7)
            meant = f" Did you mean {near[0]!r}?" if near else ""
            fix = f"Correct the schema.{meant} The file has {', '.join(map(repr, names))[:1000]}."
            raise DataError("The file does not have this column of the schema.", fix=fix, file=path, field=column)


def _whole_records(path: Path, file: BinaryIO, quoting: str | None) -> Iterator[tuple[int, bytes]]:
    """Parts of the text that end with a record, and their first lines; `quoting` is the delimiter if text is quoted."""
    # As in pyarrow and csv: a quote opens quoted text only at the start of a field, and is doubled inside it.
    opens = rb"(?<![^\r\n%b])" % re.escape((quoting or "").encode())
    records = re.compile(rb'(?:(?:[^"\n]++|%b"[^"]*+(?:""[^"]*+)*+"|(?!%b)")*+\n)*+' % (opens, opens))
    line, rest = 1, file.read(len(codecs.BOM_UTF8)).removeprefix(codecs.BOM_UTF8)
    while chunk := file.read(BLOCK_BYTES):
        rest += chunk
        cut = records.match(rest).end() if quoting and b'"' in rest else rest.rfind(b"\n") + 1
        if cut:
            yield line, rest[:cut]
            line += rest.count(b"\n", 0, cut)
            rest = rest[cut:]
        elif len(rest) > LONGEST_BYTES:
            what = f"The line, or a quoted text that begins on it, is over {LONGEST_BYTES >> 20} MiB long."
            raise DataError(what, fix="Check its quotes, and that the file has one row per line.", file=path, line=line)
    if rest:
        yield line, rest


def _parse(text: bytes, first_line: int, names: list[str], needed: list[str], delimiter: str, quotes: bool) -> Block:
    """Parse the needed columns of a text whose first line has this number."""
    quote = {"quote_char": '"' if quotes else False, "newlines_in_values": quotes}
    try:
        table = pa_csv.read_csv(
            pa.BufferReader(text),
            pa_csv.ReadOptions(use_threads=False, block_size=len(text) + 1, column_names=names),
            pa_csv.ParseOptions(delimiter=delimiter, **quote),
            pa_csv.ConvertOptions(column_types=dict.fromkeys(needed, pa.string()), include_columns=needed),
        )
    except pa.ArrowInvalid:  # pyarrow does not report the line of a bad row
        table = None
    if table is None or table.num_rows != text.count(b"\n") + (
        not text.endswith(b"\n")
    ):  # a quoted text has several lines
        return _parse_slowly(text, first_line, names, needed, delimiter, quotes)
    values = {name: pc.utf8_trim_whitespace(table[name].combine_chunks()) for name in needed}
    return Block(values, np.arange(first_line, first_line + table.num_rows), [])


def _parse_slowly(
    text: bytes, first_line: int, names: list[str], needed: list[str], delimiter: str, quotes: bool
) -> Block:
    """The same, row by row, with the line of each row and what is wrong with it."""
    decoded = io.StringIO(text.decode("utf-8", "surrogateescape"), newline="")
    quoting = csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE
    reader, following = csv.reader(decoded, delimiter=delimiter, quoting=quoting), first_line
    places = [names.index(name) for name in needed]
    rows: list[list[str]] = []
    lines: list[int] = []
    faults: list[Fault] = []
    for row in reader:
        line, following = following, first_line + reader.line_num
        if not row:
            continue
        if len(row) != len(names):
            faults.append((line, None, f"The line has {len(row)} fields, not {len(names)}."))
            continue
        values = [row[place].strip() for place in places]
        if not_text := [name for name, value in zip(needed, values, strict=True) if NOT_UTF8.search(value)]:
            reason = "The text is not UTF-8 (if the file is Latin-1, convert it: iconv -f latin1 -t utf-8)."
            faults.append((line, not_text[0], reason))
            continue
        rows.append(values)
        lines.append(line)
    columns = zip(*rows, strict=True) if rows else [()] * len(places)
    arrays = [pa.array(column, pa.string()) for column in columns]
    return Block(dict(zip(needed, arrays, strict=True)), np.array(lines, int), faults)


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
                    except (
                        pa.ArrowInvalid,
                        pa.ArrowNotImplementedError,
                    ):  # bytes that are not text; lists and the like
                        what = f"The column has values of type {column.type}, which are neither text nor numbers."
                        fix = "Write one text or number per row, or remove the column from the schema."
                        raise DataError(what, fix=fix, file=path, field=name) from None
                values[name] = column
            yield Block(values, np.arange(following, following + batch.num_rows), [])
            following += batch.num_rows


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn any error of reading a damaged file into a DataError that names the file."""
    try:
        yield
    except GZIP_DAMAGE as error:
        what = f"The gzip file is cut short or damaged ({error})."
        fix = f"Download it again; `gzip -t {path}` checks whether it is complete. --on-bad-row cannot skip this."
        raise DataError(what, fix=fix, file=path) from error
    except (pa.ArrowException, csv.Error, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # from the system, not from pyarrow
            raise
        if is_parquet(path):
            what, fix = f"The Parquet file is damaged ({error}).", "Generate it again."
        else:
            what, fix = f"The file cannot be read: {error}.", "Check that it is text with one row per line."
        raise DataError(what, fix=fix, file=path) from error

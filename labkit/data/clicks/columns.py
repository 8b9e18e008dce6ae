"""Read the columns that a schema needs from CSV, TSV or Parquet."""

import codecs
import contextlib
import csv
import gzip
import io
import math
import re
import zlib
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from labkit import DataError, errors
from labkit.data.clicks.schema import TableSchema

PARQUET_MAGIC, GZIP_MAGIC = b"PAR1", b"\x1f\x8b"
GZIP_DAMAGE = (EOFError, zlib.error, gzip.BadGzipFile)
"""Raised for a gzip file that is cut short or damaged, has a wrong checksum, or has other bytes after its end."""
BLOCK_BYTES = 4 * 2**20
"""Bytes of text read at once."""
LONGEST_BYTES = 2**26
"""Longest record allowed."""
SAMPLE_BYTES = 2**20
MOST_SPACES = 8
"""Spaces between a separator and a quote, if a text of several lines follows"""
csv.field_size_limit(LONGEST_BYTES)  # not 128 KiB per field, a limit that pyarrow's reader does not have

NOT_UTF8 = re.compile("[\ud800-\udfff]")
"""What bytes that are not UTF-8 become when they are decoded with "surrogateescape"."""

Fault = tuple[int, str | None, str]
"""(line, field, reason)"""
Span = tuple[int, int]
"""(number of lines, the first of them)"""
STRAY_QUOTE = (
    "A quotation mark opens a text here that is not closed, or only after lines that look like rows. If the file "
    "quotes nothing, write quotes = false in the schema; if one text has all these lines, quotes = true."
)
SPACED_QUOTE = rb'[\r\n%b] +"(?!"[^\r\n%b])'
"""A quote that opens a text behind spaces, but not one that is doubled inside a text"""
FOREIGN_FILES = (
    (rb"BZh|\xfd7zXZ|\x28\xb5\x2f\xfd", "is packed by bzip2, xz or Zstandard", "Unpack it, or pack it with gzip."),
    (rb".{257}ustar", "is a tar archive", "Unpack it, and give a file that was in it."),
    (rb"PK\x03\x04", "is a ZIP archive or a spreadsheet", "Unpack it, or export its sheet as CSV."),
    (
        rb"\xff\xfe|\xfe\xff|\0+[ -~]\0|[ -~]\0+[ -~]\0",
        "is in UTF-16 or UTF-32",
        "Convert it: iconv -f utf-16 -t utf-8.",
    ),
    (rb"ARROW1|FEA1|ORC", "is a Feather or ORC file", "Write it as Parquet: pandas.read_feather(…).to_parquet(…)."),
    (
        rb"SQLite format 3|\x93NUMPY|\x80[\x02-\x05]",
        "is no text",
        "Write it as Parquet or CSV, with the library that made it.",
    ),
    (rb"\s*(\{\s*\"|\[\s*[{\[])", "is JSON", "Write it as Parquet or CSV: pandas.read_json(…, lines=True)."),
    (rb"\s*<(!DOCTYPE|html)", "is a page of a web site", "Download the table again."),
    (rb"version https://git-lfs", "stands for one that Git LFS keeps", "Fetch it: git lfs pull."),
)
"""First bytes of files that are no tables labkit reads, what such a file is, and the way on"""
WIDE = "\x1f"
"""Stands for a separator of several characters, which no reader of text takes"""


@dataclass(frozen=True)
class Block:
    """Consecutive rows as read, before they are checked."""

    values: dict[str, pa.Array]
    """Values by column: trimmed text, "" where missing; numbers where the file has types"""
    lines: np.ndarray
    """int64 (N,): the line on which each row begins, from 1; in Parquet the number of the row"""
    faults: list[Fault]
    """Further rows, which cannot be read"""
    spans: tuple[Span, ...] = ()
    """Rows with quoted text over several lines"""


def open_bytes(path: Path) -> BinaryIO:
    """Open a file for reading and unpack gzip, which is recognised by its first bytes, whatever its name."""
    with path.open("rb") as file:
        first = file.read(2)
    if not first and path.suffix in (".gz", ".parquet"):  # without rows, too, such a file has bytes
        raise DataError("The file is empty.", fix="Download it again, or generate it again.", file=path)
    return cast(BinaryIO, gzip.open(path, "rb")) if first == GZIP_MAGIC else path.open("rb")


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
            start = file.read(SAMPLE_BYTES).removeprefix(codecs.BOM_UTF8).lstrip(b"\r\n")
            line = re.split(rb"[\r\n]", start, maxsplit=1)[0]
    if not line.strip():
        raise DataError("The file is empty.", fix="Give a file with rows.", file=path)
    try:
        delimiter, wide = _delimiter(path, schema)
        text = line.decode().replace(wide, delimiter) if wide else line.decode()
        return [name.strip() for name in next(csv.reader([text], **_dialect(delimiter, schema.quoted)))]
    except UnicodeDecodeError:
        _refuse_foreign(path)
        if path.suffix in (".gz", ".parquet") or re.search(rb"[\0-\x08\x0e-\x1f]", line):
            what = "The first line is not text: the file is damaged, or is neither text, gzip nor Parquet."
            raise DataError(what, fix="Download it again, or generate it again.", file=path, line=1) from None
        fix = f"Convert the file, for example: iconv -f latin1 -t utf-8 {path.name} > utf8-{path.name}"
        raise DataError("The text is not UTF-8.", fix=fix, file=path, line=1) from None


def _refuse_foreign(path: Path) -> None:
    """Raise a DataError if the file is of a known kind that is not read."""
    with open_bytes(path) as file:
        start = file.read(512)
    for pattern, what, fix in FOREIGN_FILES:
        if re.match(pattern, start, re.DOTALL):
            raise DataError(f"The file {what}.", fix=fix, file=path)


def _delimiter(path: Path, schema: TableSchema) -> tuple[str, str]:
    """The separator as one character, and what it stands for if that is several."""
    if schema.separator is not None:
        text = schema.separator.strip(" ") or " "
        return (WIDE, text) if len(text) > 1 else (text, "")
    return ("\t" if ".tsv" in path.suffixes else ","), ""


def _dialect(delimiter: str, quotes: bool) -> dict[str, Any]:
    """How csv.reader reads a file."""
    quoting = csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE
    return {"delimiter": delimiter, "quoting": quoting, "skipinitialspace": delimiter != " "}


def read_columns(path: Path, schema: TableSchema) -> Iterator[Block]:
    """Yield the rows of a file; empty lines are skipped."""
    with reading(path):
        if is_parquet(path):
            _check_names(path, read_header(path, schema), schema)
            yield from _read_parquet(path, schema)
            return
        if has_no_header := bool(schema.names):
            _refuse_foreign(path)
        names = list(schema.names) or read_header(path, schema)
        _check_names(path, names, schema)
        names = [name if name in schema.columns else f"{place} {name}" for place, name in enumerate(names)]
        delimiter, wide = _delimiter(path, schema)
        with open_bytes(path) as file:
            for line, text in _whole_records(path, file, delimiter if schema.quoted else None):
                text = text.replace(wide.encode(), WIDE.encode()) if wide else text
                block = _parse(text, line, names, schema, delimiter)
                if not has_no_header and len(block.lines):  # empty lines may come first
                    has_no_header = True
                    values = {name: each[1:] for name, each in block.values.items()}
                    block = replace(block, values=values, lines=block.lines[1:])
                yield block


def _check_names(path: Path, names: list[str], schema: TableSchema) -> None:
    for column in schema.columns:
        if names.count(column) > 1:
            what = f"The header has {column!r} {names.count(column)} times, and the schema needs it."
            raise DataError(what, fix="Give each column that is needed a unique name.", file=path, line=1)
        if column not in names:
            fix = f"Correct the schema: {errors.did_you_mean(column, names)[:1000]}"
            if keys := [part for part in path.parent.parts if part.startswith(f"{column}=")]:
                fix = f"It is in the name of the folder ({keys[-1]}), which is not read: write it into the files."
            elif len(names) == 1 and re.search(rf"\b{re.escape(column)}\b", names[0]):
                names_in = f"The header is {names[0][:80]!r}"
                fix = f"{names_in}: write in the schema what separates names, as in separator = ';'."
            else:
                _refuse_foreign(path)
            raise DataError("The file does not have this column of the schema.", fix=fix, file=path, field=column)


def _whole_records(path: Path, file: BinaryIO, quoting: str | None) -> Iterator[tuple[int, bytes]]:
    """Parts of the text that end with a record, and their first lines; `quoting` is the delimiter if text is quoted."""
    # As in pyarrow and csv: a quote opens quoted text only at the start of a field, and is doubled inside it.
    before = re.escape((quoting or "").encode())
    spaces = b"|".join(rb"(?<=[\r\n%b]%b)" % (before, b" " * count) for count in range(1, MOST_SPACES + 1))
    opens = rb"(?:(?<![^\r\n%b])|%b)" % (before, spaces)
    records = re.compile(rb'(?:(?:[^"\n]++|%b"[^"]*+(?:""[^"]*+)*+"|(?!%b)")*+\n)*+' % (opens, opens))
    line, rest = 1, file.read(len(codecs.BOM_UTF8)).removeprefix(codecs.BOM_UTF8)
    while chunk := file.read(BLOCK_BYTES):
        rest += chunk
        cut = errors.certain(records.match(rest)).end() if quoting and b'"' in rest else rest.rfind(b"\n") + 1
        if not cut and len(rest) > LONGEST_BYTES:
            # its first line has a stray quote, which costs this line
            cut = rest.rfind(b"\n", 0, BLOCK_BYTES) + 1
            if not cut:
                what = f"The line, or a quoted text that begins on it, is over {LONGEST_BYTES >> 20} MiB long."
                fix = "Check its quotes, and that the file has one row per line."
                raise DataError(what, fix=fix, file=path, line=line)
        if cut:
            yield line, rest[:cut]
            line += rest.count(b"\n", 0, cut)
            rest = rest[cut:]
    if rest:
        yield line, rest


def _parse(text: bytes, first_line: int, names: list[str], schema: TableSchema, delimiter: str, as_text=False) -> Block:
    """Parse the needed columns of a text whose first line has this number: at once if possible, or else row by row."""
    # Criteo's integers of up to 18 digits become float64, null where empty; others are text for the error
    numeric = schema.log if schema.layout == "criteo" and not as_text else ()
    needed, quotes = schema.columns, schema.quoted
    spaced = SPACED_QUOTE % ((re.escape(delimiter.encode()),) * 2)
    if not (quotes and b' "' in text and re.search(spaced, text)):
        quote = {"quote_char": '"' if quotes else False, "newlines_in_values": quotes}
        types = dict.fromkeys(needed, pa.string()) | dict.fromkeys(numeric, pa.float64())
        try:
            table = pa_csv.read_csv(
                pa.BufferReader(text),
                pa_csv.ReadOptions(block_size=len(text) + 1, column_names=names),
                pa_csv.ParseOptions(delimiter=delimiter, **quote),
                pa_csv.ConvertOptions(column_types=types, include_columns=needed, null_values=["", *schema.missing]),
            )
            newlines = text.count(b"\n")
            values = {name: table[name].combine_chunks() for name in needed}
            whole = [pc.and_(pc.less(pc.abs(x), 1e18), pc.equal(pc.floor(x), x)) for x in map(values.get, numeric)]
            is_each_line_a_row = table.num_rows == newlines + (not text.endswith(b"\n"))  # no text of several lines
            if is_each_line_a_row and all(pc.all(each, min_count=0).as_py() for each in whole):
                if _has_space(text, delimiter, newlines):
                    values |= {name: pc.utf8_trim_whitespace(values[name]) for name in needed if name not in numeric}
                return Block(values, np.arange(first_line, first_line + table.num_rows), [])
        except pa.ArrowInvalid:  # it has a bad row, whose line pyarrow does not report
            pass
    if numeric:
        return _parse(text, first_line, names, schema, delimiter, as_text=True)
    places = [names.index(name) for name in needed]
    rows: list[list[str]] = []
    lines: list[int] = []
    faults: list[Fault] = []
    spans: list[Span] = []
    for line, count, row in _Records(text, names, schema, delimiter):
        line += first_line
        if row is None or len(row) != len(names):
            if row != []:  # an empty line
                count = f"The line has {len(row or ())} fields, not {len(names)}: that many columns have names."
                faults.append((line, None, STRAY_QUOTE if row is None else count))
            continue
        values = [row[place].strip() for place in places]
        if not_text := [name for name, value in zip(needed, values, strict=True) if NOT_UTF8.search(value)]:
            reason = "The text is not UTF-8 (if the file is Latin-1, convert it: iconv -f latin1 -t utf-8)."
            faults.append((line, not_text[0], reason))
            continue
        rows.append(values)
        lines.append(line)
        spans += [(count, line)] * (count > 1)
    arrays = {name: pa.array([row[place] for row in rows], pa.string()) for place, name in enumerate(needed)}
    return Block(arrays, np.array(lines, int), faults, tuple(spans))


def _has_space(text: bytes, delimiter: str, newlines: int) -> bool:
    """Whether a field may begin or end with a space of any kind."""
    if not text.isascii() or b'"' in text:
        return True
    codes = np.frombuffer(text, np.uint8)
    separators = newlines + (delimiter <= " " and np.count_nonzero(codes == ord(delimiter)))
    return bool(np.count_nonzero(codes <= ord(" ")) > separators)


class _StrayQuoteError(Exception):
    """A line inside quotes looks like a row."""


class _Records:
    """The records of a text: for each its first line from 0, the number of its lines, and its fields.

    A record is None if a stray quote opens a text in it that ends elsewhere by chance or never; the next begins on the
    next line, so that such a quote costs one line.
    """

    def __init__(self, text: bytes, names: list[str], schema: TableSchema, delimiter: str):
        self._lines = list(io.StringIO(text.decode("utf-8", "surrogateescape"), newline=""))
        self._dialect, self._width, self._asks = _dialect(delimiter, schema.quoted), len(names), schema.quotes is None
        label = [schema.label.column] if schema.label.at_least is not None else []
        self._numeric = [names.index(name) for name in (*schema.dense, *label)]
        self._missing, self._label = {"", *schema.missing}, names.index(schema.label.column)
        known = {*schema.label.positive, *schema.label.negative} if schema.label.negative else set()
        self._known = known and known | self._missing
        self._closed = re.compile(rf'" +(?={re.escape(delimiter)}|[\r\n]|$)')  # spaces after a quote, which csv refuses
        self._begin = self._next = 0

    def __iter__(self) -> Iterator[tuple[int, int, list[str] | None]]:
        while self._begin < len(self._lines):
            try:
                for row in csv.reader(self._feed(), strict=True, **self._dialect):
                    yield self._begin, self._next - self._begin, row
                    self._begin = self._next
            except (csv.Error, _StrayQuoteError):
                # a quote that is closed inside a field of one line ("new" town) is no stray one
                row, *following = csv.reader([self._lines[self._begin], "end"], **self._dialect)
                yield self._begin, 1, row if following else None
                self._begin = self._next = self._begin + 1

    def _feed(self) -> Iterator[str]:
        while self._next < len(self._lines):
            line = self._lines[self._next]
            if self._next > self._begin and self._asks and self._is_row(line):
                raise _StrayQuoteError
            self._next += 1
            yield self._closed.sub('"', line) if '" ' in line else line

    def _is_row(self, line: str) -> bool:
        """Whether a line reads as a row of its own: its number of fields, its numbers, and its label."""
        try:
            fields = [field.strip() for field in next(csv.reader([line], strict=True, **self._dialect))]
        except csv.Error:
            return False
        if len(fields) != self._width or ('"' in line and any('"' in field for field in fields)):
            return False
        return (not self._known or fields[self._label] in self._known) and all(
            fields[place] in self._missing or not math.isnan(number(fields[place])) for place in self._numeric
        )


def number(text: str) -> float:
    """NaN if the text is not a number; 2026_11 is one for Python only."""
    try:
        return math.nan if "_" in text else float(text)
    except ValueError:
        return math.nan


def _read_parquet(path: Path, schema: TableSchema) -> Iterator[Block]:
    following = 1
    with path.open("rb") as file:
        for batch in pq.ParquetFile(file, page_checksum_verification=True).iter_batches(columns=schema.columns):
            values = {}
            for name in schema.columns:
                column = batch[name]
                kinds = pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean
                numeric = any(is_kind(column.type) for is_kind in kinds)
                if not (numeric and name in schema.dense):
                    try:
                        column = pc.utf8_trim_whitespace(pc.fill_null(_as_text(column), ""))
                    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # bytes that are not text; lists
                        what = f"The column has values of type {column.type}, which are neither text nor numbers."
                        fix = "Write one text or number per row, or remove the column from the schema."
                        raise DataError(what, fix=fix, file=path, field=name) from None
                values[name] = column
            yield Block(values, np.arange(following, following + batch.num_rows), [])
            following += batch.num_rows


def _as_text(column: pa.Array) -> pa.Array:
    """Values as texts: whole numbers as integers whatever their type, NaN (which polars keeps apart) as null."""
    if not pa.types.is_floating(column.type):
        return pc.cast(column, pa.string())
    numbers = pc.cast(column, pa.float64())
    is_whole = pc.and_(pc.equal(pc.floor(numbers), numbers), pc.less(pc.abs(numbers), 2.0**63))
    whole = pc.cast(pc.if_else(is_whole, numbers, None), pa.int64())  # a float of 1e12 is 1e+12 as text
    others = pc.if_else(pc.is_nan(numbers), None, pc.cast(column, pa.string()))
    return pc.coalesce(pc.cast(whole, pa.string()), others)


@contextlib.contextmanager
def reading(path: Path) -> Generator[None]:
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

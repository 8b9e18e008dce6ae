"""Read the columns that a schema needs from CSV, TSV or Parquet, turn each field into a number, and refuse bad rows."""

import codecs
import contextlib
import csv
import gzip
import io
import re
import zlib
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from labkit import DataError, errors
from labkit.data.clicks.generate import signed_log
from labkit.data.clicks.schema import TableSchema
from labkit.data.store import BadRows

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
    return cast(BinaryIO, gzip.open(path, "rb")) if packed else path.open("rb")


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
            fix = f"Correct the schema: {errors.did_you_mean(column, names)[:1000]}"
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
    """Parse the needed columns of a text whose first line has this number: at once if possible, or else row by row."""
    quote = {"quote_char": '"' if quotes else False, "newlines_in_values": quotes}
    try:
        table = pa_csv.read_csv(
            pa.BufferReader(text),
            pa_csv.ReadOptions(use_threads=False, block_size=len(text) + 1, column_names=names),
            pa_csv.ParseOptions(delimiter=delimiter, **quote),
            pa_csv.ConvertOptions(column_types=dict.fromkeys(needed, pa.string()), include_columns=needed),
        )
        if table.num_rows == text.count(b"\n") + (not text.endswith(b"\n")):  # no quoted text with several lines
            values = {name: pc.utf8_trim_whitespace(table[name].combine_chunks()) for name in needed}
            return Block(values, np.arange(first_line, first_line + table.num_rows), [])
    except pa.ArrowInvalid:  # it has a bad row, whose line pyarrow does not report
        pass
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
    arrays = {name: pa.array([row[place] for row in rows], pa.string()) for place, name in enumerate(needed)}
    return Block(arrays, np.array(lines, int), faults)


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
                    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # bytes that are not text; lists
                        what = f"The column has values of type {column.type}, which are neither text nor numbers."
                        fix = "Write one text or number per row, or remove the column from the schema."
                        raise DataError(what, fix=fix, file=path, field=name) from None
                values[name] = column
            yield Block(values, np.arange(following, following + batch.num_rows), [])
            following += batch.num_rows


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


LARGEST = 2.0**64
"""Largest number accepted: no integer type goes further, and squares of such numbers can still be added up."""
TOO_FAR = 1e9
"""Largest distance of a value from the median of its column, in widths of the column's inner 98 %. Beyond it, those
98 % would hardly differ after standardisation."""
LISTED = 10
"""Most values of a label's column that an error lists"""
HEXADECIMAL = re.compile("[0-9a-fA-F]{0,8}")
Refuse = Callable[[np.ndarray, str, str], None]
"""Called with the rows to refuse, bool (N,), the field and the reason, in which {} stands for the value."""


class RowChecker:
    """Turns blocks of text into numbers and reports the rows that cannot be used to `bad`.

    Criteo's categories are hashes of 32 bits and stay as they are. Other categories are numbered by CRC-32, so that no
    text has to be kept: among a million values about 230 share a number with another, among 10,000 hardly one.
    """

    def __init__(self, schema: TableSchema, bad: BadRows, schema_file: Path | None = None):
        self.schema, self.bad, self.schema_file = schema, bad, schema_file
        self.label_values: dict[str, None] = {}
        """Some values of the label's column"""
        self._seen: set[str] = set()  # classes of the label: positive, negative
        self._missing = pa.array(["", *schema.missing])

    def check(self, path: Path, block: Block) -> tuple[np.ndarray, ...]:
        """The usable rows (N) of a block.

        Returns:
            Label bool (N,); dense float64 (N, D), as signed logarithms where the schema says so, NaN where missing;
            categorical uint32 (N, F), a number for each value; fold uint8 (N,), 1 for rows that the split column
            assigns to validation, 2 for test.
        """
        usable, faults = np.ones(len(block.lines), dtype=bool), list(block.faults)

        def refuse(wrong: np.ndarray, name: str, reason: str) -> None:
            for row in np.flatnonzero(wrong & usable).tolist():
                value = f"{block.values[name][row].as_py()!r:.60}"
                faults.append((int(block.lines[row]), name, reason.replace("{}", value, 1)))
                usable[row] = False

        schema = self.schema
        label = self._label(path, block.values[schema.label.column], refuse)
        dense = np.empty((len(label), len(schema.dense)))
        for index, name in enumerate(schema.dense):
            dense[:, index] = self._dense(name, block.values[name], usable, refuse)
        categorical = np.empty((len(label), len(schema.categorical)), np.uint32)
        for index, name in enumerate(schema.categorical):
            categorical[:, index] = self._categorical(name, block.values[name], refuse)
        fold = self._fold(block, refuse)
        for line, field, reason in sorted(faults, key=lambda fault: fault[0]):
            self.bad.add(DataError(reason, fix="Correct the row.", file=path, line=line, field=field))
        return label[usable], dense[usable], categorical[usable], fold[usable]

    def _label(self, path: Path, text: pa.Array, refuse: Refuse) -> np.ndarray:
        label = self.schema.label
        positive = is_in(text, pa.array(label.positive))
        negative = is_in(text, pa.array(label.negative)) if label.negative else ~positive & ~is_in(text, self._missing)
        self._seen |= {name for name, fits in (("positive", positive), ("negative", negative)) if fits.any()}
        if len(self.label_values) < LISTED:
            self.label_values |= dict.fromkeys(pc.unique(text).to_pylist()[:LISTED])
        never = [name for name in ("positive", "negative") if name not in self._seen]
        strange = ~(positive | negative | is_in(text, self._missing))
        if strange.any() and len(never) > (self.bad.policy != "error"):  # the schema is wrong, not the rows
            values = ", ".join(map(repr, self.label_values))
            what = f"No row of {path} read so far has one of these values; column {label.column!r} has {values}."
            field, file = ", ".join(f"label.{name}" for name in never), self.schema_file or path
            raise DataError(what, fix="Correct the values in the schema.", file=file, field=field)
        expected = ", ".join(map(repr, [*label.positive, *(label.negative or ["any other value"])]))
        refuse(~positive & ~negative, label.column, f"The label {{}} is not one of {expected}.")
        return positive

    def _dense(self, name: str, values: pa.Array, usable: np.ndarray, refuse: Refuse) -> np.ndarray:
        if pa.types.is_string(values.type):
            absent = is_in(values, self._missing)
            try:
                numbers = pc.cast(pc.if_else(pa.array(absent), None, values), pa.float64())
                numbers = numbers.to_numpy(zero_copy_only=False)
            except pa.ArrowInvalid:
                numbers = np.array([_number(value) for value in values.to_pylist()])
        else:
            # not safe: a float64 keeps only the first 53 bits of a larger integer
            numbers = pc.cast(values, pa.float64(), safe=False).to_numpy(zero_copy_only=False)
            absent = np.isnan(numbers)
        refuse(~absent & ~np.isfinite(numbers), name, "The value {} is not a finite number.")
        numbers = np.where(absent, np.nan, numbers)
        if self.schema.layout == "criteo":
            wrong = (np.abs(numbers) >= 1e18) | (np.floor(numbers) < numbers)
            refuse(wrong, name, "The value {} is not an integer of up to 18 digits.")
        if name in self.schema.log:
            return signed_log(numbers)
        reason = (
            "The value {} is so large that all others of the column would be the same number after standardisation; if "
            "it is right, list the column under `log` in the schema; if it means missing, list it under `missing`."
        )
        refuse(_too_far(numbers, usable), name, reason)
        return numbers

    def _categorical(self, name: str, values: pa.Array, refuse: Refuse) -> np.ndarray:
        column = values.dictionary_encode()  # each distinct text is converted once
        texts = column.dictionary.to_pylist()
        if self.schema.layout == "criteo":
            numbers = [int(text or "0", 16) if HEXADECIMAL.fullmatch(text) else -1 for text in texts]
        else:
            missing = self.schema.missing  # and "", whose CRC-32 is 0
            numbers = [0 if text in missing else zlib.crc32(text.encode()) for text in texts]
        found = np.array(numbers, np.int64)[column.indices.to_numpy()]
        refuse(found < 0, name, "The category {} is not a number of up to 8 hexadecimal digits.")
        return found.astype(np.uint32)

    def _fold(self, block: Block, refuse: Refuse) -> np.ndarray:
        split, fold = self.schema.split, np.zeros(len(block.lines), np.uint8)
        if split.column is not None:
            values = pc.cast(block.values[split.column], pa.string())
            refuse(is_in(values, self._missing), split.column, "The split {} is missing.")
            for number, chosen in ((1, split.validation_values), (2, split.test_values)):
                fold[is_in(values, pa.array(chosen, pa.string()))] = number
        return fold


def is_in(values: pa.Array, chosen: pa.Array) -> np.ndarray:
    """Which of the values (N,) are among the chosen: bool (N,)."""
    return pc.is_in(values, chosen).to_numpy(zero_copy_only=False)


def _too_far(values: np.ndarray, usable: np.ndarray) -> np.ndarray:
    """Which values (N,) would leave the others of their block without differences: bool (N,)."""
    known = values[usable & np.isfinite(values)]
    if len(known) == 0:
        return np.zeros(len(values), dtype=bool)
    low, high = np.quantile(known, 0.01, method="higher"), np.quantile(known, 0.99, method="lower")
    with np.errstate(invalid="ignore", over="ignore"):
        far = np.abs(values - np.median(known)) > TOO_FAR * (high - low)
    return (np.abs(values) > LARGEST) | (far & (high > low))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return np.nan

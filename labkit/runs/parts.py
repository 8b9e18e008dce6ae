"""Rows in numbered Parquet parts, each of them whole or absent; in a long run, many parts are merged into one."""

import re
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from labkit.runs.safe_files import note_left_out, replacing


def _schema(optional: str, **types: pa.DataType) -> pa.Schema:
    """A schema of these columns; the optional ones may be null."""
    return pa.schema([pa.field(name, kind, nullable=name in optional.split()) for name, kind in types.items()])


_WHOLE, _NUMBER, _TEXT = pa.int64(), pa.float64(), pa.string()
METRICS = _schema(
    "value train_s samples", step=_WHOLE, wall_s=_NUMBER, train_s=_NUMBER, samples=_WHOLE, name=_TEXT, value=_NUMBER
)
TELEMETRY = _schema(
    "pid value unit source note",
    time_ns=_WHOLE, device=_TEXT, scope=_TEXT, pid=_WHOLE, counter=_TEXT, value=_NUMBER, unit=_TEXT, source=_TEXT,
    note=_TEXT,
)  # fmt: skip
WORD = pa.dictionary(pa.int32(), _TEXT)
TELEMETRY_WORDS = pa.schema([each.with_type(WORD) if each.type == _TEXT else each for each in TELEMETRY])
"""The same with dictionaries for text, which take a twentieth of the memory"""


class PartWriter:
    """Collects rows and writes them as `part-00000.parquet`, `part-00001.parquet` and so on, in one step each."""

    max_rows, max_age_s = 50_000, 5.0
    """Rows, and seconds since the last part, after which a part is written."""

    def __init__(self, folder: Path, schema: pa.Schema):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.schema = folder, schema
        self.next_number = max((part_numbers(path)[-1] for path in part_files(folder)), default=-1) + 1
        self._rows: list[dict[str, Any]] = []
        self._flushed_at = time.monotonic()
        pa.array([])  # the first array may import pandas: half a second that must not fall into a run's time

    def append(self, *rows: dict[str, Any]) -> None:
        """Take rows, which stay in one part; write a part once there are enough rows, or old ones."""
        self._rows.extend(rows)
        if len(self._rows) >= self.max_rows or time.monotonic() - self._flushed_at >= self.max_age_s:
            self.flush()

    def flush(self) -> None:
        """Write the collected rows as one part."""
        self._flushed_at = time.monotonic()
        if self._rows:
            self._write(self._rows, part_path(self.folder, self.next_number))
            self.next_number += 1
            self._rows = []

    def _write(self, rows: list[dict[str, Any]], path: Path) -> None:
        write_part(pa.Table.from_pylist(rows, schema=self.schema), path)


class MergingPartWriter(PartWriter):
    """A `PartWriter` that writes in a thread of its own and merges its parts, sorted so that a series lies together.

    Merged small parts stay until the next merge, so that a reader who has just listed them can still open them; readers
    skip them.
    """

    parts = 60
    """Number of small parts that are merged into a large one: five minutes of samples."""

    def __init__(self, folder: Path, schema: pa.Schema, *, sort_by: Sequence[str]):
        super().__init__(folder, schema)
        self._sort_by = [(name, "ascending") for name in sort_by]
        self._small: list[Path] = []
        self._merged: list[Path] = []
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="parts")
        self._writing: list[Future] = []

    def flush(self) -> None:
        """Hand the collected rows to the thread that writes them.

        Raises:
            UserError: the disk was full; the rows of that part are lost, but not those before it.
        """
        super().flush()
        while self._writing and self._writing[0].done():
            self._writing.pop(0).result()

    def settle(self) -> None:
        """Wait until everything handed over is written; raises the same errors as `flush`."""
        while self._writing:
            self._writing.pop(0).result()

    def close(self) -> None:
        """Write what is left, and delete parts that were merged before."""
        with self._writer:
            self.settle()
            self._drop_merged()
            self.flush()
            self.settle()

    def _write(self, rows: list[dict[str, Any]], path: Path) -> None:
        self._writing.append(self._writer.submit(self._write_in_turn, rows, path))

    def _write_in_turn(self, rows: list[dict[str, Any]], path: Path) -> None:
        super()._write(rows, path)
        self._small.append(path)
        if len(self._small) < self.parts:
            return
        self._drop_merged()
        table = pa.concat_tables(pq.read_table(path, schema=self.schema) for path in self._small)
        path = part_path(self.folder, part_numbers(self._small[0])[0], part_numbers(self._small[-1])[0])
        write_part(table.sort_by(self._sort_by), path)
        self._merged, self._small = self._small, []

    def _drop_merged(self) -> None:
        for path in self._merged:
            path.unlink(missing_ok=True)
        self._merged = []


ROW_GROUP = 2**14
"""Rows that are read together: a close look at a long curve reads few of them"""


def write_part(table: pa.Table, path: Path, **options: Any) -> None:
    """Write a part, whole or not at all; `options` are more of `pyarrow.parquet.write_table`.

    Raises:
        UserError: the disk is full.
    """
    # a column's statistics leave NaN out, and DuckDB, which trusts them, would not find a diverged number
    with_statistics = [each.name for each in table.schema if not pa.types.is_floating(each.type)]
    options = {"row_group_size": ROW_GROUP, "compression": "zstd", "compression_level": 3} | options
    with replacing(path) as temporary:
        pq.write_table(table, temporary, write_page_checksum=True, write_statistics=with_statistics, **options)


DAMAGED = (pa.ArrowException, ValueError, KeyError, OSError)
"""Errors that Arrow raises for a damaged part"""


def part_path(folder: Path, first: int, last: int | None = None) -> Path:
    """Path of part number `first`, or of the part that `first` to `last` were merged into."""
    return folder / (f"part-{first:05d}.parquet" if last is None else f"part-{first:05d}-{last:05d}.parquet")


NAME = re.compile(r"part-(\d{5,6})(?:-(\d{5,6}))?\.parquet")
"""Names of parts. At one every few seconds, a million of them take two months."""


def part_numbers(path: Path) -> range:
    """The numbers of the parts in a file, such as 0 to 59 for `part-00000-00059.parquet`; empty for another file."""
    named = NAME.fullmatch(path.name)
    return range(int(named[1]), int(named[2] or named[1]) + 1) if named else range(0)


def part_files(folder: Path) -> list[Path]:
    """The parts in a folder, in order; another Parquet file, such as a copy, is noted and left out."""
    found = sorted(folder.iterdir()) if folder.is_dir() else []
    paths = [path for path in found if path.suffix == ".parquet" and not path.name.startswith(".")]
    for path in paths:
        if not part_numbers(path):
            note_left_out(path, "it does not have the name of a part: another program must have put it there")
    return sorted(filter(part_numbers, paths), key=lambda path: part_numbers(path)[0])


def spare_pandas() -> None:
    """Keep pyarrow from importing pandas with its first array, which takes half a second.

    `to_pandas` imports it later. Only for processes that are wholly ours: until then, pyarrow takes a Series for any
    other sequence, in which NaN is no null.
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
    """The parts of a folder, in order, without small ones that were merged into another one."""
    paths = part_files(folder)
    merged = [numbers for path in paths if len(numbers := part_numbers(path)) > 1]
    return [path for path in paths if len(own := part_numbers(path)) > 1 or not any(own[0] in each for each in merged)]


def groups_within(metadata: pq.FileMetaData, column: str, low: float, high: float) -> list[int]:
    """The row groups of a part that may have a whole number from `low` to `high` in this column, by what they state."""
    place = metadata.schema.names.index(column)
    stated = [metadata.row_group(group).column(place).statistics for group in range(metadata.num_row_groups)]
    return [
        group
        for group, each in enumerate(stated)
        if not each or not each.has_min_max or (low <= each.max and each.min <= high)
    ]


def read_part(
    path: Path, schema: pa.Schema, columns: Sequence[str] | None = None, steps: tuple[float, float] | None = None
) -> pa.Table | None:
    """The rows of a part, with checksums verified; None, with a note, for a damaged part.

    Args:
        path: the part.
        schema: schema of its rows; text columns may be dictionaries instead.
        columns: columns to read, by default all.
        steps: first and last `step` to read; by default all.

    Raises:
        FileNotFoundError: it was merged into another part since it was listed.
    """
    names = list(columns or schema.names)
    try:
        metadata = pq.read_metadata(path)
        has = metadata.schema.names  # parts of older versions lack some columns that may be null
        words = [each.name for each in schema if pa.types.is_dictionary(each.type) and each.name in has]
        options = {"pre_buffer": False, "page_checksum_verification": True, "read_dictionary": words}
        with pq.ParquetFile(path, metadata=metadata, **options) as file:
            groups = range(file.num_row_groups) if steps is None else groups_within(metadata, "step", *steps)
            table = file.read_row_groups(groups, columns=names, use_threads=False)
        for each in schema:
            if each.name in names and each.name not in has and each.nullable:
                table = table.append_column(each, pa.nulls(len(table), each.type))
        table = table.select(names).cast(pa.schema([schema.field(name) for name in names]))
        table.validate(full=True)  # for example, that text is UTF-8
        if steps is not None:
            table = table.filter((pc.field("step") >= steps[0]) & (pc.field("step") <= steps[1]))
        return table
    except FileNotFoundError:
        raise
    except DAMAGED as error:
        note_left_out(path, f"this part is damaged ({str(error).splitlines()[0]})")
        return None


def columns_of(paths: Sequence[Path], schema: pa.Schema) -> dict[str, Any]:
    """The rows of many parts, with their `run`, as columns of a frame: arrays, and categoricals.

    Arrow's threads read ahead of this one, which moves the rows of each part to their place.

    Raises:
        DAMAGED: a part is; `read_part` says which.
    """
    import pyarrow.dataset as ds

    reading = ds.ParquetReadOptions(dictionary_columns=[each.name for each in schema if each.type == WORD])
    scanning = ds.ParquetFragmentScanOptions(page_checksum_verification=True, pre_buffer=True)
    kind = ds.ParquetFileFormat(reading, default_fragment_scan_options=scanning)
    found = ds.dataset([str(path) for path in paths], schema, format=kind)
    columns = {each.name: Column(each, found.count_rows()) for each in [pa.field("run", WORD), *schema]}
    end = 0
    for batch, fragment in found.scanner(batch_size=2**20, fragment_readahead=32).scan_batches():
        batch.validate(full=True)  # for example, that text is UTF-8
        begin, end = end, end + len(batch)
        run = pa.DictionaryArray.from_arrays(pa.repeat(0, len(batch)), [Path(fragment.path).parents[1].name])
        for column, values in zip(columns.values(), [run, *batch.columns], strict=True):
            column.fill(begin, end, values)
    return {name: column.whole() for name, column in columns.items()}


class Column:
    """A column of many parts in one array; a text is a number, and each word is kept once."""

    def __init__(self, field: pa.Field, rows: int):
        self._field, self._words = field, {}
        self._values = np.empty(rows, np.int8 if field.type == WORD else field.type.to_pandas_dtype())

    def fill(self, begin: int, end: int, part: pa.Array) -> None:
        """Set these rows."""
        if part.null_count and not self._field.nullable:
            raise ValueError(f"{self._field.name} is missing")
        if self._field.type != WORD:
            self._room_for(values := part.to_numpy(zero_copy_only=False))  # with a null, integers become floats
            self._values[begin:end] = values
            return
        codes = [self._words.setdefault(word, len(self._words)) for word in part.dictionary.to_pylist()]
        self._room_for(codes := np.array([*codes, -1], np.min_scalar_type(-len(self._words) - 1)))
        places = part.indices.fill_null(-1) if part.null_count else part.indices
        np.take(codes.astype(self._values.dtype), places, out=self._values[begin:end], mode="wrap")

    def _room_for(self, values: np.ndarray) -> None:
        self._values = self._values.astype(np.promote_types(self._values.dtype, values.dtype), copy=False)

    def whole(self) -> Any:
        """All rows, as an array or a categorical."""
        import pandas as pd

        if self._field.type != WORD:
            return self._values
        return pd.Categorical.from_codes(self._values, np.array([*self._words], object), validate=False)

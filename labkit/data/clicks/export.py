"""Write generated rows as a file: the real Criteo layout, or a table with a header."""

from __future__ import annotations

import contextlib
import gzip
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from labkit.data.clicks.generate import ClickGenerator, GeneratorConfig
from labkit.data.clicks.synthetic import column_names
from labkit.data.clicks.vocabulary import scramble
from labkit.data.store import Progress
from labkit.errors import UserError

FORMATS = ("criteo", "csv", "parquet")


def write_clicks(out: Path, rows: int, config: GeneratorConfig, file_format: str, progress: Progress) -> None:
    """Generate `rows` rows into a file, which appears only when it is whole; a name ending in .gz is packed.

    Raises:
        UserError: an unknown format, or options that the format cannot hold.
    """
    if file_format not in FORMATS:
        raise UserError(f"The format {file_format!r} is unknown: choose one of {', '.join(FORMATS)}.")
    if config.pooling_factor != 1:
        raise UserError(f"pooling_factor is {config.pooling_factor}, and a file holds one category a field: use 1.")
    if file_format == "criteo" and (config.dense_dim, len(config.num_rows)) != (13, 26):
        raise UserError(
            f"Criteo's layout has 13 dense and 26 categorical features, not {config.dense_dim} and "
            f"{len(config.num_rows)}: leave those options out, or choose the format csv or parquet."
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary, done = out.with_name(f".{out.name}.partial"), 0
    try:
        with contextlib.ExitStack() as stack:
            sink = stack.enter_context(temporary.open("wb"))
            if out.suffix == ".gz":  # mtime=0: the same rows make the same bytes
                sink = stack.enter_context(gzip.GzipFile(fileobj=sink, mode="wb", filename="", mtime=0))
            for batch in table_batches(config, rows):
                if done == 0:
                    writer = stack.enter_context(_open_writer(sink, batch.schema, file_format))
                writer.write(batch)
                done += batch.num_rows
                progress(done / rows, f"{done:,} of {rows:,} rows written")
        temporary.replace(out)
    finally:
        temporary.unlink(missing_ok=True)


def _open_writer(sink, schema: pa.Schema, file_format: str) -> pa_csv.CSVWriter | pq.ParquetWriter:
    if file_format == "parquet":
        return pq.ParquetWriter(sink, schema, write_page_checksum=True)
    is_csv = file_format == "csv"
    unquoted = {"quoting_style": "none", "quoting_header": "none"}
    options = pa_csv.WriteOptions(include_header=is_csv, delimiter="," if is_csv else "\t", **unquoted)
    return pa_csv.CSVWriter(sink, schema, write_options=options)


def table_batches(config: GeneratorConfig, rows: int) -> Iterator[pa.Table]:
    """The generated rows as tables with the columns label, I1, I2, … and C1, C2, …; null where missing."""
    dense_names, categorical_names = column_names(config)
    tokens = [category_tokens(table, size) for table, size in enumerate(config.num_rows)]
    for block in ClickGenerator(config).blocks("train", rows):
        counts = block.counts.astype(np.int64)
        columns = [
            pa.array(block.label.astype(np.int64)),
            *(pa.array(counts[:, index], mask=block.missing[:, index]) for index in range(counts.shape[1])),
            *(names.take(pa.array(block.categorical[:, index, 0])) for index, names in enumerate(tokens)),
        ]
        yield pa.table(columns, names=["label", *dense_names, *categorical_names])


def category_tokens(table: int, num_rows: int) -> pa.Array:
    """The names (num_rows,) of a table's categories: 8 hexadecimal digits, all different; null for row 0."""
    # Scrambling is a bijection, so categories never share a name; the offset keeps tables apart.
    values = scramble(np.arange(num_rows, dtype=np.uint32) + np.uint32(table << 24))
    return pa.array([None, *(f"{value:08x}" for value in values[1:].tolist())])

"""Generated click logs: with names, prepared like any other, and as files in Criteo's layout or with a header."""

from __future__ import annotations

import contextlib
import gzip
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from labkit.data.clicks.generate import ClickGenerator, GeneratorConfig
from labkit.data.clicks.metrics import auc
from labkit.data.clicks.prepared import SPLITS, ClickWriter, write_meta
from labkit.data.clicks.vocabulary import scramble
from labkit.data.store import Progress
from labkit.errors import UserError

SYNTHETIC = {
    "synthetic": GeneratorConfig(),
    "synthetic-small": GeneratorConfig(
        train_rows=50_000,
        validation_rows=6_000,
        test_rows=6_000,
        num_rows=tuple(int(50 * 40 ** (index / 7)) for index in range(8)),
    ),
    # The shapes of the reference DLRM's benchmark preset (facebookresearch/dlrm, bench/).
    "synthetic-benchmark": GeneratorConfig(
        train_rows=40_960,
        validation_rows=8_192,
        test_rows=8_192,
        dense_dim=512,
        num_rows=(1_000_000,) * 8,
        pooling_factor=100,
    ),
}
"""The generated datasets by name."""
FORMATS = ("criteo", "csv", "parquet")


def config_bytes(config: GeneratorConfig) -> int:
    """Bytes of the prepared rows."""
    rows = config.train_rows + config.validation_rows + config.test_rows
    return rows * (4 * config.dense_dim + 4 * len(config.num_rows) * config.pooling_factor + 1)


def column_names(config: GeneratorConfig) -> tuple[list[str], list[str]]:
    """The names of the dense and of the categorical features, as Criteo's are called."""
    kinds = (("I", config.dense_dim), ("C", len(config.num_rows)))
    return tuple([f"{letter}{number}" for number in range(1, count + 1)] for letter, count in kinds)


def prepare_synthetic(
    folder: Path, config: GeneratorConfig, *, name: str, fingerprint: str, progress: Progress
) -> None:
    """Generate a click log into `folder`; `info` holds what the true probabilities reach."""
    generator, (dense_names, categorical_names) = ClickGenerator(config), column_names(config)
    splits = {split: getattr(config, f"{split}_rows") for split in SPLITS}
    total, clicks, truth = sum(splits.values()), 0, {}
    with ClickWriter(folder, config.dense_dim, len(config.num_rows), config.pooling_factor) as writer:
        for split, rows in splits.items():
            labels, probabilities = [], []
            for block in generator.blocks(split, rows):
                writer.append(block.dense, block.categorical, block.label)
                labels.append(block.label)
                probabilities.append(block.probability)
                progress(writer.rows / total, f"{writer.rows:,} of {total:,} rows made")
            label, probability = np.concatenate(labels), np.concatenate(probabilities)
            truth[split] = auc(label, probability)
            clicks += int(label.sum()) if split == "train" else 0
    write_meta(
        folder,
        name=name,
        dense_names=dense_names,
        categorical_names=categorical_names,
        table_rows=list(config.num_rows),
        pooling_factor=config.pooling_factor,
        fingerprint=fingerprint,
        splits=splits,
        info={
            "generator": asdict(config),
            "rows": total,
            "base_rate": clicks / config.train_rows,
            "bayes_auc": truth["test"],
            "bayes_auc_validation": truth["validation"],
            "skipped": {"rows": 0, "first": []},
        },
    )


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

"""`load_clicks`: open a click log by name or path; it is prepared at the first call.

A prepared click log is three memory-mapped arrays and a `meta.json`, the same for every source.

    dense.npy        float32 (N, D)     standardised dense features
    categorical.npy  int32 (N, F, L)    row numbers in the embedding tables; row 0 is "unknown or rare"
    label.npy        uint8 (N,)         1 for a click

The rows of a split are contiguous. N rows, D dense features, F categorical features, L lookups per bag.
"""

import dataclasses
import functools
import re
import statistics
import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from labkit import DataError, UserError, project
from labkit.data import store
from labkit.data.catalog import unknown
from labkit.data.clicks.columns import open_bytes, read_header, reading
from labkit.data.clicks.generate import SYNTHETIC, ClickGenerator, GeneratorConfig, auc
from labkit.data.clicks.prepare import PARTS, SPLITS, ClickWriter, prepare_files
from labkit.data.clicks.schema import DAY_FILE, SCHEMA_EXAMPLE, TableSchema, override, read_schema, schema_of
from labkit.data.store import BadRows, Progress

FORMAT_VERSION = 3
READER_VERSION = 2
"""Raised when the same file is read as other numbers, so that it is prepared again"""


@dataclass(frozen=True)
class ClickSplit:
    """The rows of one split, as views of the memory-mapped arrays."""

    dense: np.ndarray  # float32 (N, D)
    categorical: np.ndarray  # int32 (N, F, L)
    label: np.ndarray  # uint8 (N,), 1 for a click

    def __len__(self) -> int:
        return len(self.label)

    def spread(self, most: int) -> "ClickSplit":
        """Every k-th row, such that there are at most `most` rows."""
        step = max(1, -(-len(self) // most))
        return ClickSplit(self.dense[::step], self.categorical[::step], self.label[::step])


class ClickLog:
    """A prepared click log, opened without reading its rows."""

    def __init__(self, folder: Path):
        self.folder = folder
        meta = store.read_meta(folder)
        self.name: str = meta["name"]
        self.dense_names: list[str] = meta["dense_names"]
        self.categorical_names: list[str] = meta["categorical_names"]
        self.table_rows: tuple[int, ...] = tuple(meta["table_rows"])
        """Rows of each embedding table, including row 0 (unknown or rare)"""
        self.pooling_factor: int = meta["pooling_factor"]
        self.fingerprint: str = meta["fingerprint"]
        self.info: dict = meta["info"]
        self._rows: dict[str, int] = meta["splits"]

    @functools.cached_property
    def _arrays(self) -> tuple[np.ndarray, ...]:
        return tuple(np.load(self.folder / f"{part}.npy", mmap_mode="r") for part in PARTS)

    def split(self, name: str) -> ClickSplit:
        """The split "train", "validation" or "test"."""
        start = sum(self._rows[before] for before in SPLITS[: SPLITS.index(name)])
        return ClickSplit(*(array[start : start + self._rows[name]] for array in self._arrays))

    def __repr__(self) -> str:
        rows = ", ".join(f"{name} {self._rows[name]:,}" for name in SPLITS)
        return (
            f"ClickLog({self.name!r}: {len(self.dense_names)} dense, {len(self.table_rows)} categorical "
            f"features, {sum(self.table_rows):,} table rows; {rows})"
        )


def load_clicks(
    data: str,
    *,
    schema: str | Path | None = None,
    on_bad_row: str = "error",
    cache_dir: Path | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    **options,
) -> ClickLog:
    """Open a click log. It is prepared first if that has not been done yet, or if its source has changed.

    Args:
        data: a name ("synthetic", "synthetic-small", "synthetic-benchmark"), a file (Criteo's layout, CSV, TSV or
            Parquet; text may be compressed by gzip), or a folder of Criteo's day files, or with a schema of parts.
        schema: the TOML file that says what the columns mean. Criteo's layout and UCI Adult are recognised without.
        on_bad_row: one of `labkit.data.POLICIES`; skipped rows are listed in `info["skipped"]`.
        cache_dir: the folder of prepared data; default `labkit.data.prepared_root()`.
        seed: of the generator, or of a random split.
        progress: called with the fraction done and a short text.
        options: for a name, fields of `GeneratorConfig`; for a path, fields of the schema. They replace the values
            there. `max_rows_per_table` bounds the tables of both.

    Raises:
        DataError: the data cannot be used; file, line and field say where.
        UserError: the name or an option is unknown, the schema is wrong, or the disk is full.
    """
    progress = progress or (lambda fraction, text: None)
    path = Path(data).expanduser()
    if data in SYNTHETIC:
        # a bound on the tables, as a model's preset may give, holds for generated ones too
        most = options.pop("max_rows_per_table", None)
        config = override(SYNTHETIC[data], {**options, "seed": seed})
        if most is not None:
            config = dataclasses.replace(config, num_rows=tuple(min(rows, most) for rows in config.num_rows))
        name, source = data, dataclasses.asdict(config)
        prepare = functools.partial(prepare_synthetic, config=config, progress=progress)
        recorded = functools.partial(store.fingerprint, format=FORMAT_VERSION, **source)
    elif path.exists():
        chosen = override(find_schema(path) if schema is None else read_schema(Path(schema)), options)
        bad, name, notices = BadRows(on_bad_row), path.stem, ()
        if path.is_dir() and chosen.layout == "table":
            files, notices = table_parts(path)
        else:
            files = criteo_files(path)
        marks = [store.file_fingerprint(file) for file in files]
        settings = {"schema": dataclasses.asdict(chosen), "on_bad_row": on_bad_row, "seed": seed}
        settings |= {"reader": READER_VERSION}
        source = {"sources": marks, **settings}
        recorded = functools.partial(store.content_fingerprint, path, files, format=FORMAT_VERSION, **settings)

        def prepare(folder: Path) -> dict:
            return prepare_files(folder, files, chosen, seed, bad, progress, Path(schema) if schema else None, notices)

    else:
        raise unknown(data, "clicks")
    mark = store.fingerprint(format=FORMAT_VERSION, **source)

    def build(folder: Path) -> dict:
        marks = []
        reading_all = threading.Thread(target=lambda: marks.append(recorded()), daemon=True)  # not awaited by an error
        reading_all.start()
        prepared = prepare(folder)
        reading_all.join()
        return {"name": name, "fingerprint": marks[0], **prepared}

    root = store.prepared_root() if cache_dir is None else Path(cache_dir)
    return ClickLog(store.prepare_once(root / "clicks" / f"{name}-{mark}", build))


def prepare_synthetic(folder: Path, config: GeneratorConfig, progress: Progress) -> dict:
    """Generate a click log into `folder` and return the content of its `meta.json`; `info` has the AUC of the true
    probabilities."""
    store.check_disk(folder, config.prepared_bytes)
    generator, (dense_names, categorical_names) = ClickGenerator(config), config.names
    splits = {split: getattr(config, f"{split}_rows") for split in SPLITS}
    rate, truth = {}, {}
    with ClickWriter(folder, config.dense_dim, len(config.num_rows), config.pooling_factor) as writer:
        for split, rows in splits.items():
            labels, probabilities = [], []
            for block in generator.blocks(split, rows):
                writer.append(block.dense, block.categorical, block.label)
                labels.append(block.label)
                probabilities.append(block.probability)
                progress(writer.rows / config.rows, f"{writer.rows:,} of {config.rows:,} rows generated")
            label = np.concatenate(labels)
            truth[split], rate[split] = auc(label, np.concatenate(probabilities)), float(label.mean())
    return {
        "dense_names": dense_names,
        "categorical_names": categorical_names,
        "table_rows": config.num_rows,
        "pooling_factor": config.pooling_factor,
        "splits": splits,
        "info": {
            "generator": dataclasses.asdict(config),
            "rows": config.rows,
            "base_rate": rate["train"],
            "bayes_auc": truth["test"],
            "bayes_auc_validation": truth["validation"],
            "skipped": {"rows": 0, "first": []},
        },
    }


def find_schema(path: Path) -> TableSchema:
    """The schema of a file that is recognised: Criteo's layout, or the header of a schema that ships."""
    if path.is_dir() or is_criteo(path):
        return schema_of({"layout": "criteo"})
    for file in sorted((project.shipped_datasets() / "schemas").glob("*.toml")):
        schema = read_schema(file)
        if schema.layout == "table" and set(schema.columns) <= set(read_header(path, schema)):
            return schema
    raise UserError(
        f"{path} is neither in Criteo's layout (40 fields separated by tabs, no header) nor a table with a known "
        f"header: write a schema that says what its columns mean, and pass it with --schema FILE. Example:\n"
        f"{SCHEMA_EXAMPLE}"
    )


def is_criteo(path: Path) -> bool:
    """Whether the first lines of a file look like Criteo's: 0 or 1, then about 39 tabs."""
    with reading(path), open_bytes(path) as file:
        start = file.read(2**16)
    lines = [line for line in start.split(b"\n")[:20] if line.strip()]
    if not lines or not re.match(rb"[^\t]{0,4}\t", lines[0]):
        return False
    # the typical line decides, because reporting a bad line or two is the parser's task
    return abs(statistics.median(line.count(b"\t") for line in lines) - 39) <= 1


def criteo_files(path: Path) -> list[Path]:
    """The file, or the day files of a folder, ordered by day."""
    if not path.is_dir():
        return [path]
    days: dict[int, Path] = {}
    for file in sorted(path.iterdir()):
        if match := DAY_FILE.match(file.name):
            days.setdefault(int(match[1]), file)
    if not days:
        inside = ", ".join(sorted(file.name for file in path.iterdir() if file.is_file())[:3])
        raise DataError(
            "The folder has no file named day_0, day_1, … (or day_0.gz, …).",
            fix="Give the folder with Criteo's day files, one file, or with --schema FILE a folder of a table's parts"
            f"{f' (here: {inside})' if inside else ''}.",
            file=path,
        )
    return [days[day] for day in sorted(days)]


PART = re.compile(r"\.(parquet|csv|tsv)(\.gz|\.\w+\.parquet)?$|(?:^|/)day_\d+(\.gz)?$")
"""Names of parts of a table, those with a codec such as .snappy.parquet as well"""


def table_parts(path: Path) -> tuple[list[Path], tuple[str, ...]]:
    """The files of a folder that are parts of one table, in natural order of their names; and what the user should
    know: which others there are, and that names of parts make no splits.

    Folders within are read, too. What begins with a dot or an underscore is left out, as in Spark and pyarrow.

    Raises:
        DataError: there is no part, there are parts of several formats, or a log says which of them count.
    """
    logs = [path / "_delta_log", path / ".hoodie", *path.glob("metadata/*.metadata.json")]
    if log := next((each for each in logs if each.exists()), None):
        raise DataError(
            f"{log.relative_to(path)} says which parts still belong to this table, and is not read.",
            fix="Write it out as plain Parquet, with the library that made it (Delta Lake, Hudi or Iceberg).",
            file=path,
        )
    parts: dict[str, list[Path]] = {}
    others: list[str] = []
    for file in sorted(path.rglob("*")):
        name = file.relative_to(path).as_posix()
        if not file.is_file() or re.search(r"(^|/)[._]", name):
            continue
        if (match := PART.search(name)) and file.stat().st_size:
            parts.setdefault(match[1] or "day", []).append(file)
        else:
            others.append(name)
    if len(parts) != 1:
        kinds = ", ".join(f"{len(files)} .{kind}" for kind, files in parts.items())
        found = kinds or ", ".join(others[:3]) or "nothing"
        raise DataError(
            f"The folder has {'parts of several formats' if parts else 'no part of a table'} (found: {found}).",
            fix="Give a folder whose files .parquet, .csv or .tsv (or .csv.gz, .tsv.gz) are parts of one table.",
            file=path,
        )
    (files,) = parts.values()
    more = f" and {len(others) - 3:,} more" if len(others) > 3 else ""
    notices = [f"not read from {path}: {', '.join(others[:3])}{more}"] if others else []
    numbered = {match.groups() for file in files if (match := re.match(r"(.*\D)(\d+)-of-(\d+)", file.name))}
    for (name, count), there in Counter((name, int(count)) for name, _, count in numbered).items():
        if there < count:
            notices.append(f"of {count} parts {name}… only {there} are there: download the others")
    words = {match[0] for file in files if (match := re.match("train|valid|test", file.name))}
    if len(words) > 1:
        notices.append(
            f"the parts of {path} are read as one table, whatever their names say ({', '.join(sorted(words))}): give a "
            "column of the split (split.column), or the folder of one of them"
        )

    def natural(file: Path) -> list[tuple[int, str]]:
        return [(int(digits or 0), text) for digits, text in re.findall(r"(\d+)|(\D+)", str(file.relative_to(path)))]

    return sorted(files, key=natural), tuple(notices)

"""`load_clicks`: from a name or a path to a prepared click log, prepared once and then opened."""

from __future__ import annotations

import dataclasses
import difflib
from pathlib import Path

from labkit.data.bad_rows import BadRows
from labkit.data.clicks.columns import delimiter_of, read_header
from labkit.data.clicks.criteo import criteo_files, is_criteo, preflight, prepare_criteo
from labkit.data.clicks.prepared import FORMAT_VERSION, ClickLog
from labkit.data.clicks.schema import EXAMPLE, CriteoSchema, TableSchema, override, read_schema
from labkit.data.clicks.synthetic import SYNTHETIC, config_bytes, prepare_synthetic
from labkit.data.clicks.tabular import preflight_table, prepare_table
from labkit.data.store import (
    Progress,
    disk_full,
    file_fingerprint,
    fingerprint,
    free_disk_bytes,
    prepare_once,
    prepared_root,
    shipped_datasets,
)
from labkit.errors import DataError, UserError


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
    """Open a click log, preparing it first if that was not done before or its source changed.

    Args:
        data: a name ("synthetic", "synthetic-small", "synthetic-benchmark"), a file (Criteo's layout, CSV,
            TSV or Parquet; text may be packed by gzip), or a folder of Criteo's day files.
        schema: the TOML file that says what the columns mean; Criteo's layout and UCI Adult are known
            without one. on_bad_row: "error" stops at the first bad row, "skip" counts and lists them in
            `info["skipped"]`. cache_dir: where prepared data is kept; default `prepared_root()`. seed: of the
            generator, or of a random split. progress: called with the fraction done and a few words. options:
            fields of `GeneratorConfig` for a name, of the schema for a path, in place of what they are there;
            `max_rows_per_table` bounds the tables of both.

    Raises:
        DataError: the data cannot be used; it says where and why.
        UserError: an unknown name or option, a bad schema, a full disk.
    """
    root = prepared_root() if cache_dir is None else Path(cache_dir)
    progress = progress or (lambda fraction, text: None)
    if data in SYNTHETIC:
        return _load_synthetic(data, root, seed, progress, options)
    path = Path(data).expanduser()
    if not path.exists():
        raise _unknown(data)
    chosen = override(find_schema(path) if schema is None else read_schema(Path(schema)), options)
    return _load_files(path, chosen, root, on_bad_row, seed, progress)


def find_schema(path: Path) -> TableSchema | CriteoSchema:
    """The schema of a file that is known without being told.

    Raises:
        UserError: the file is none of those.
    """
    if path.is_dir():
        return CriteoSchema()
    if path.stat().st_size == 0:
        raise DataError("The file is empty.", fix="Give a file with rows.", file=path)
    if is_criteo(path):
        return CriteoSchema()
    for file in sorted((shipped_datasets() / "schemas").glob("*.toml")):
        schema = read_schema(file)
        if isinstance(schema, TableSchema):
            names = read_header(path, delimiter_of(path, schema.separator))
            if set(schema.columns) <= set(names):
                return schema
    raise UserError(
        f"{path} is neither in Criteo's layout (40 fields separated by tabs, no header) nor a table known by "
        "its header, so what its columns mean has to be said: write a schema and pass it with --schema FILE, "
        f"for example\n{EXAMPLE}"
    )


def _load_synthetic(name: str, root: Path, seed: int, progress: Progress, options: dict) -> ClickLog:
    # A bound on the tables, as a model's preset may give, holds for generated ones too.
    most = options.pop("max_rows_per_table", None)
    config = override(SYNTHETIC[name], {**options, "seed": seed})
    if most is not None:
        config = dataclasses.replace(config, num_rows=tuple(min(rows, most) for rows in config.num_rows))
    mark = fingerprint(format=FORMAT_VERSION, **dataclasses.asdict(config))
    folder = root / "clicks" / f"{name}-{mark}"

    def build(temporary: Path) -> None:
        needed_bytes = config_bytes(config)
        if needed_bytes > free_disk_bytes(temporary):
            raise disk_full(folder, needed_bytes)
        prepare_synthetic(temporary, config, name=name, fingerprint=mark, progress=progress)

    return ClickLog(prepare_once(folder, build))


def _load_files(
    path: Path, schema: TableSchema | CriteoSchema, root: Path, on_bad_row: str, seed: int, progress: Progress
) -> ClickLog:
    criteo = isinstance(schema, CriteoSchema)
    files, bad = criteo_files(path) if criteo else [path], BadRows(on_bad_row)
    mark = fingerprint(
        format=FORMAT_VERSION,
        sources=[file_fingerprint(file, root) for file in files],
        schema=dataclasses.asdict(schema),
        on_bad_row=on_bad_row,
        seed=None if criteo else seed,
    )
    folder = root / "clicks" / f"{path.stem}-{mark}"

    def build(temporary: Path) -> None:
        told = {"name": path.stem, "fingerprint": mark, "bad": bad, "progress": progress}
        if criteo:
            progress(0.0, preflight(files, folder))
            prepare_criteo(temporary, files, schema, **told)
        else:
            progress(0.0, preflight_table(path))
            prepare_table(temporary, path, schema, seed=seed, **told)

    return ClickLog(prepare_once(folder, build))


BROUGHT = {
    "adult": "the UCI Adult data, a CSV file that is known by its header",
    "criteo": "Criteo's train.txt, or the folder with its day_0, day_1, …",
}
"""Names of `labkit data list` that stand for files the reader has."""


def _unknown(data: str) -> UserError:
    if data in BROUGHT:
        return UserError(
            f"{data!r} does not ship with labkit: give the path of your copy instead of the name, {BROUGHT[data]}."
        )
    if data in ("shipped", "fsdd"):
        return UserError(f"{data!r} is speech, not a click log: train on it with `labkit train speech`.")
    near = difflib.get_close_matches(data, SYNTHETIC, 1)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    return UserError(
        f"{data!r} is neither a file or folder nor the name of a click log. {hint}"
        f"The names are {', '.join(SYNTHETIC)}; `labkit data list` shows every dataset."
    )

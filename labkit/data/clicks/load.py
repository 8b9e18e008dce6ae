"""`load_clicks`: from a name or a path to a prepared click log, prepared once and then opened."""

from __future__ import annotations

import dataclasses
import difflib
from pathlib import Path

from labkit.data.bad_rows import BadRows
from labkit.data.clicks.columns import read_header
from labkit.data.clicks.criteo import criteo_files, is_criteo
from labkit.data.clicks.prepare import preflight, prepare_files
from labkit.data.clicks.prepared import FORMAT_VERSION, ClickLog
from labkit.data.clicks.schema import EXAMPLE, TableSchema, override, read_schema, schema_of
from labkit.data.clicks.synthetic import SYNTHETIC, config_bytes, prepare_synthetic
from labkit.data.store import (
    Progress,
    check_disk,
    file_fingerprint,
    fingerprint,
    prepare_once,
    prepared_root,
    shipped_datasets,
)
from labkit.errors import UserError


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
    files, bad = criteo_files(path), BadRows(on_bad_row)
    mark = fingerprint(
        format=FORMAT_VERSION,
        sources=[file_fingerprint(file) for file in files],
        schema=dataclasses.asdict(chosen),
        on_bad_row=on_bad_row,
        seed=seed,
    )
    folder = root / "clicks" / f"{path.stem}-{mark}"

    def build(temporary: Path) -> None:
        progress(0.0, preflight(files, folder, chosen))
        told = {"name": path.stem, "fingerprint": mark, "seed": seed, "bad": bad, "progress": progress}
        prepare_files(temporary, files, chosen, **told)

    return ClickLog(prepare_once(folder, build))


def find_schema(path: Path) -> TableSchema:
    """The schema of a file that is known without being told.

    Raises:
        UserError: the file is none of those.
    """
    if path.is_dir() or is_criteo(path):
        return schema_of({"layout": "criteo"})
    for file in sorted((shipped_datasets() / "schemas").glob("*.toml")):
        schema = read_schema(file)
        if schema.layout == "table" and set(schema.columns) <= set(read_header(path, schema)):
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
        check_disk(folder, config_bytes(config))
        prepare_synthetic(temporary, config, name=name, fingerprint=mark, progress=progress)

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

"""Every dataset that has a name: made here, shipped, and in `catalog.toml` downloaded or brought by the reader."""

from __future__ import annotations

import difflib
import tomllib
from dataclasses import dataclass
from pathlib import Path

from labkit.data.clicks.load import DAY_FILE
from labkit.data.clicks.synthetic import SYNTHETIC, config_bytes
from labkit.data.fetch import Archive
from labkit.data.store import prepared_root, shipped_datasets
from labkit.errors import UserError

TABLE_SUFFIXES = (".csv", ".tsv", ".parquet", ".gz")
STATES = {"made here": "on first use", "shipped": "shipped", "downloaded": "to download", "your copy": "give its path"}
"""Of a dataset that is not prepared yet, by its origin."""


@dataclass(frozen=True)
class Dataset:
    """One line of `labkit data list`."""

    name: str
    kind: str
    """"clicks" or "speech"."""
    extent: str
    """Rows or hours."""
    licence: str
    source: str
    origin: str
    """One of `STATES`."""
    size_bytes: int | None = None
    """On disk when it is prepared, or to download; None: depends on the reader's copy."""
    archives: tuple[Archive, ...] = ()
    """What is downloaded."""

    def state(self) -> str:
        """Whether it is here: "prepared", "downloaded", or one of `STATES`."""
        for folder, state in ((self.kind, "prepared"), ("downloads", "downloaded")):
            if any((prepared_root() / folder).glob(f"{self.name}-????????????????")):
                return state
        return STATES[self.origin]


def list_datasets() -> list[Dataset]:
    """The catalogue."""
    made = []
    for name, config in SYNTHETIC.items():
        rows = config.train_rows + config.validation_rows + config.test_rows
        facts = ("clicks", f"{rows:,} rows", "Apache-2.0", "labkit's generator", "made here", config_bytes(config))
        made.append(Dataset(name, *facts))
    # Known here by name, not asked of labkit.data.speech: that would import torch for a list.
    size_bytes = sum(file.stat().st_size for file in (shipped_datasets() / "speech").rglob("*") if file.is_file())
    source = "labkit's script, spoken by espeak-ng"
    shipped = Dataset("shipped", "speech", "over 1 hour", "Apache-2.0", source, "shipped", size_bytes)
    return [*made, shipped, *LISTED.values()]


def _listed(name: str, archives: tuple[dict, ...] = (), **facts: str) -> Dataset:
    if not archives:
        return Dataset(name, origin="your copy", **facts)
    found = tuple(Archive(**archive) for archive in archives)
    size_bytes = sum(archive.size_bytes for archive in found)
    return Dataset(name, origin="downloaded", size_bytes=size_bytes, archives=found, **facts)


CATALOG = tomllib.loads(Path(__file__).with_name("catalog.toml").read_text(encoding="utf-8"))
LISTED = {name: _listed(name, **entry) for name, entry in CATALOG.items()}
DOWNLOADS = {name: dataset for name, dataset in LISTED.items() if dataset.archives}
"""What can be downloaded, by name."""


def unknown(data: str, kind: str) -> UserError:
    """The error for what is neither a path nor the name of a dataset of this kind that labkit brings or makes."""
    datasets = list_datasets()
    for dataset in datasets:
        if dataset.name != data:
            continue
        if dataset.kind != kind:
            what, job = {"clicks": ("a click log", "dlrm"), "speech": ("speech", "speech")}[dataset.kind]
            return UserError(f"{data!r} is {what}: train on it with `labkit train {job}`.")
        download = next((name for name in DOWNLOADS if name.startswith(data)), None)
        hint = f"download it with `labkit data prepare {download}`, or " if download else ""
        return UserError(f"{data!r} does not ship with labkit: {hint}give the path of your copy ({dataset.source}).")
    names = [each.name for each in datasets if each.kind == kind and each.origin in ("made here", "shipped")]
    near = difflib.get_close_matches(data, names, 1)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    return UserError(
        f"{data!r} is neither a file or folder nor the name of a dataset. {hint}The names are {', '.join(names)}; "
        "`labkit data list` shows every dataset."
    )


def kind_of(data: str) -> str:
    """Whether a name or path is of "clicks" or "speech"; what is neither is left to the click logs' error."""
    for dataset in list_datasets():
        if dataset.name == data:
            return dataset.kind
    path = Path(data).expanduser()
    if not path.is_dir():
        return "speech" if path.suffix == ".jsonl" else "clicks"
    inside = list(path.iterdir())
    holds_days = any(DAY_FILE.match(file.name) for file in inside)
    # speech with tables beside it, as Common Voice, has its audio in folders
    holds_tables = any(file.suffix in TABLE_SUFFIXES for file in inside) and not any(file.is_dir() for file in inside)
    return "clicks" if holds_days or holds_tables else "speech"

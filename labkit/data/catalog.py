"""Every dataset that has a name: made here, shipped, and in `catalog.toml` downloaded or brought by the reader."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from labkit.data.clicks.criteo import DAY_FILE
from labkit.data.clicks.synthetic import SYNTHETIC, config_bytes
from labkit.data.fetch import Archive
from labkit.data.store import prepared_root, shipped_datasets

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

    def state(self, root: Path | None = None) -> str:
        """Whether it is here: "prepared", "downloaded", or one of `STATES`."""
        root = prepared_root() if root is None else root
        if any((root / self.kind).glob(f"{self.name}-????????????????")):
            return "prepared"
        if any((root / "downloads").glob(f"{self.name}-????????????????")):
            return "downloaded"
        return STATES[self.origin]


def list_datasets() -> list[Dataset]:
    """The catalogue."""
    made = [
        Dataset(
            name,
            "clicks",
            f"{config.train_rows + config.validation_rows + config.test_rows:,} rows",
            "Apache-2.0",
            "labkit's generator",
            "made here",
            config_bytes(config),
        )
        for name, config in SYNTHETIC.items()
    ]
    # Known here by name, not asked of labkit.data.speech: that would import torch for a list.
    files = [file for file in (shipped_datasets() / "speech").rglob("*") if file.is_file()]
    size_bytes = sum(file.stat().st_size for file in files)
    source = "labkit's script, spoken by espeak-ng"
    shipped = Dataset("shipped", "speech", "over 1 hour", "Apache-2.0", source, "shipped", size_bytes)
    return [*made, shipped, *LISTED.values()]


def _listed(name: str, archives: tuple[dict, ...] = (), **facts: str) -> Dataset:
    found = tuple(Archive(**archive) for archive in archives)
    if not found:
        return Dataset(name, origin="your copy", **facts)
    size_bytes = sum(archive.size_bytes for archive in found)
    return Dataset(name, origin="downloaded", size_bytes=size_bytes, archives=found, **facts)


LISTED = {
    name: _listed(name, **entry)
    for name, entry in tomllib.loads(Path(__file__).with_name("catalog.toml").read_text(encoding="utf-8")).items()
}
DOWNLOADS = {name: dataset for name, dataset in LISTED.items() if dataset.archives}
"""What can be downloaded, by name."""


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

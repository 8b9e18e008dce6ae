"""Every dataset that has a name: made here, shipped, downloaded, or brought by the reader."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from labkit.data.clicks.criteo import DAY_FILE
from labkit.data.clicks.synthetic import SYNTHETIC, config_bytes
from labkit.data.fetch import Archive
from labkit.data.store import prepared_root, shipped_datasets

LIBRISPEECH = "https://www.openslr.org/resources/12/"


@dataclass(frozen=True)
class Dataset:
    """One line of `labkit data list`."""

    name: str
    kind: str
    """"clicks" or "speech"."""
    extent: str
    """Rows or hours."""
    size_bytes: int | None
    """On disk when it is prepared, or to download; None: depends on the reader's copy."""
    licence: str
    source: str
    origin: str
    """"made here", "shipped", "downloaded" or "your copy"."""
    archives: tuple[Archive, ...] = ()
    """What is downloaded."""

    def state(self, root: Path | None = None) -> str:
        """Whether it is here: "prepared", "shipped", "on first use", "to download" or "give its path"."""
        root = prepared_root() if root is None else root
        if any((root / self.kind).glob(f"{self.name}-????????????????")):
            return "prepared"
        if any((root / "downloads").glob(f"{self.name}-????????????????")):
            return "downloaded"
        return {
            "made here": "on first use",
            "shipped": "shipped",
            "downloaded": "to download",
            "your copy": "give its path",
        }[self.origin]


def list_datasets() -> list[Dataset]:
    """The catalogue."""
    return [*_synthetic(), _shipped_speech(), *BROUGHT, *DOWNLOADS.values()]


def _synthetic() -> list[Dataset]:
    return [
        Dataset(
            name,
            "clicks",
            f"{config.train_rows + config.validation_rows + config.test_rows:,} rows",
            config_bytes(config),
            "Apache-2.0",
            "labkit's generator",
            "made here",
        )
        for name, config in SYNTHETIC.items()
    ]


def _shipped_speech() -> Dataset:
    folder = shipped_datasets() / "speech"
    # Known here by name, not asked of labkit.data.speech: that would import torch for a list.
    return Dataset(
        "shipped",
        "speech",
        "over 1 hour",
        sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()),
        "Apache-2.0",
        "labkit's script, spoken by espeak-ng",
        "shipped",
    )


BROUGHT = [
    Dataset(
        "fsdd",
        "speech",
        "up to 3,000 digits",
        None,
        "CC BY-SA 4.0",
        "Free Spoken Digit Dataset, its folder recordings",
        "your copy",
    ),
    Dataset(
        "adult",
        "clicks",
        "48,842 rows",
        None,
        "CC BY 4.0",
        "UCI Adult (Census Income), Becker and Kohavi",
        "your copy",
    ),
    # Sizes are not given: Criteo's terms and files changed over the years.
    Dataset(
        "criteo",
        "clicks",
        "any",
        None,
        "Criteo's terms",
        "Kaggle train.txt, Terabyte day_0 … day_23",
        "your copy",
    ),
]

DOWNLOADS = {
    # Sizes and checksums: TensorFlow Datasets' checksum lists (spoken_digit, librispeech); those of
    # LibriSpeech are the same in torchaudio 2.11's datasets/librispeech.py.
    dataset.name: dataset
    for dataset in [
        Dataset(
            "fsdd-1.0.9",
            "speech",
            "2,500 digits",
            11_975_353,
            "CC BY-SA 4.0",
            "Free Spoken Digit Dataset 1.0.9, Jakobovski et al.",
            "downloaded",
            (
                Archive(
                    "https://github.com/Jakobovski/free-spoken-digit-dataset/archive/v1.0.9.tar.gz",
                    11_975_353,
                    "8bc44cde129d505cbbb6b365c09f80c663f2aa77578afc634e6141a2f87100c0",
                ),
            ),
        ),
        Dataset(
            "librispeech-clean-100",
            "speech",
            "about 110 hours",
            337_926_286 + 346_663_984 + 6_387_309_499,
            "CC BY 4.0",
            "LibriSpeech train-clean-100, dev-clean and test-clean, Panayotov et al.",
            "downloaded",
            (
                Archive(
                    LIBRISPEECH + "train-clean-100.tar.gz",
                    6_387_309_499,
                    "d4ddd1d5a6ab303066f14971d768ee43278a5f2a0aa43dc716b0e64ecbbbf6e2",
                ),
                Archive(
                    LIBRISPEECH + "dev-clean.tar.gz",
                    337_926_286,
                    "76f87d090650617fca0cac8f88b9416e0ebf80350acb97b343a85fa903728ab3",
                ),
                Archive(
                    LIBRISPEECH + "test-clean.tar.gz",
                    346_663_984,
                    "39fde525e59672dc6d1551919b1478f724438a95aa55f874b576be21967e6c23",
                ),
            ),
        ),
    ]
}
"""What can be downloaded, by name."""


TABLE_SUFFIXES = (".csv", ".tsv", ".parquet", ".gz")


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

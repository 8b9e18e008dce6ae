"""The datasets that have a name: generated, shipped, brought by the reader, or downloaded as `catalog.toml` says."""

import tarfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from labkit import UserError, errors, project, runs
from labkit.data.clicks.generate import SYNTHETIC
from labkit.data.clicks.schema import DAY_FILE
from labkit.data.store import Progress, check_disk, prepare_once, prepared_root

TABLE_SUFFIXES = (".csv", ".tsv", ".parquet", ".gz")
STATES = {"made here": "on first use", "shipped": "shipped", "downloaded": "to download", "your copy": "give its path"}
"""State of a dataset that is not prepared yet, by its origin"""


@dataclass(frozen=True)
class Dataset:
    """One line of `labkit data list`."""

    name: str
    kind: str
    """clicks or speech"""
    extent: str
    """Rows or hours, as text"""
    licence: str
    source: str
    origin: str
    """A key of `STATES`"""
    size_bytes: int | None = None
    """Bytes on disk when prepared, or to download; None: depends on the reader's copy"""
    archives: tuple[runs.Archive, ...] = ()
    """Files to download"""

    def state(self) -> str:
        """Whether it is on this machine: "prepared", "downloaded", or one of `STATES`."""
        for folder, state in ((self.kind, "prepared"), ("downloads", "downloaded")):
            if any((prepared_root() / folder).glob(f"{self.name}-????????????????")):
                return state
        return STATES[self.origin]


def list_datasets() -> list[Dataset]:
    """All datasets that have a name."""
    made = []
    for name, config in SYNTHETIC.items():
        source, size_bytes = "labkit's generator", config.prepared_bytes
        made.append(Dataset(name, "clicks", f"{config.rows:,} rows", "Apache-2.0", source, "made here", size_bytes))
    # labkit.data.speech is not asked, because it imports torch
    files = (project.shipped_datasets() / "speech").rglob("*")
    size_bytes = sum(file.stat().st_size for file in files if file.is_file())
    source = "labkit's script, spoken by espeak-ng"
    shipped = Dataset("shipped", "speech", "over 1 hour", "Apache-2.0", source, "shipped", size_bytes)
    return [*made, shipped, *LISTED.values()]


def _listed(name: str, archives: tuple[dict, ...] = (), **facts: Any) -> Dataset:
    found, origin = tuple(runs.Archive(**archive) for archive in archives), "downloaded" if archives else "your copy"
    size_bytes = sum(archive.size_bytes for archive in found) or None
    return Dataset(name, origin=origin, size_bytes=size_bytes, archives=found, **facts)


CATALOG = tomllib.loads(Path(__file__).with_name("catalog.toml").read_text(encoding="utf-8"))
LISTED = {name: _listed(name, **entry) for name, entry in CATALOG.items()}
DOWNLOADS = {name: dataset for name, dataset in LISTED.items() if dataset.archives}
"""Datasets that can be downloaded, by name"""


def unknown(data: str, kind: str) -> UserError:
    """The error for text that is neither a path nor the name of a dataset of this kind that ships or is generated."""
    datasets = list_datasets()
    if dataset := next((each for each in datasets if each.name == data), None):
        if dataset.kind != kind:
            what, job = {"clicks": ("a click log", "dlrm"), "speech": ("speech", "speech")}[dataset.kind]
            return UserError(f"{data!r} is {what}: train on it with `labkit train {job}`.")
        download = next((name for name in DOWNLOADS if name.startswith(data)), None)
        hint = f"download it with `labkit data prepare {download}`, or " if download else ""
        return UserError(f"{data!r} does not ship with labkit: {hint}give the path of your copy ({dataset.source}).")
    names = [each.name for each in datasets if each.kind == kind and each.origin in ("made here", "shipped")]
    return UserError(
        f"{data!r} is not a file, a folder or the name of a dataset: {errors.did_you_mean(data, names)} "
        "`labkit data list` shows all datasets."
    )


def kind_of(data: str) -> str:
    """Whether a name or path is "clicks" or "speech"; anything else counts as clicks, whose loader refuses it."""
    for dataset in list_datasets():
        if dataset.name == data:
            return dataset.kind
    path = Path(data).expanduser()
    if not path.is_dir():
        return "speech" if path.suffix == ".jsonl" else "clicks"
    inside = list(path.iterdir())
    holds_days = any(DAY_FILE.match(file.name) for file in inside)
    # speech with tables next to it, such as Common Voice, has its audio in folders
    holds_tables = any(file.suffix in TABLE_SUFFIXES for file in inside) and not any(file.is_dir() for file in inside)
    return "clicks" if holds_days or holds_tables else "speech"


def fetch(name: str, archives: tuple[runs.Archive, ...], *, progress: Progress) -> Path:
    """The folder of a dataset, which is downloaded and unpacked first if necessary.

    Raises:
        UserError: a download fails, is not the published file, or does not fit on the disk.
    """
    root = prepared_root() / "downloads"
    folder = root / f"{name}-{archives[0].sha256[:16]}"

    def build(temporary: Path) -> None:
        check_disk(folder, 2 * sum(archive.size_bytes for archive in archives))  # the archive and its content
        for number, archive in enumerate(archives):

            def part(fraction: float, text: str, number=number) -> None:
                progress((number + fraction) / len(archives), text)

            file = download(archive, root / "archives", part)
            part(1.0, f"{file.name}: unpack")
            unpack(file, temporary)
            file.unlink()

    return prepare_once(folder, build)


def download(archive: runs.Archive, folder: Path, progress: Progress) -> Path:
    """Download a file into `folder`; it appears there only if its checksum is correct."""
    import pooch  # it and requests take a third of a second, which only a download needs
    import requests

    name, done = archive.url.rsplit("/", 1)[-1], 0
    pooch.get_logger().setLevel("WARNING")

    def update(size: int) -> None:
        nonlocal done
        done += size
        progress(min(1.0, done / archive.size_bytes), f"{name}: {done / 1e6:,.0f} MB")

    bar = SimpleNamespace(total=archive.size_bytes, update=update, reset=lambda: None, close=lambda: None)
    downloader: Any = pooch.HTTPDownloader(progressbar=bar, timeout=60)
    try:
        return Path(pooch.retrieve(archive.url, f"sha256:{archive.sha256}", name, folder, downloader=downloader))
    except requests.RequestException as error:
        raise UserError(
            f"Downloading {archive.url} failed ({error}): check the network and run the command again, or download the "
            "file by other means, unpack it, and give its folder instead of the name."
        ) from error
    except ValueError as error:
        if "does not match the known hash" not in str(error):
            raise
        raise UserError(
            f"{archive.url} did not send the published file (its SHA-256 is not {archive.sha256}), so it was deleted: "
            "run the command again. If that fails, too, download the file from another mirror and check its SHA-256."
        ) from error


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a tar archive into `folder`; an archive that would write or link anywhere else is refused."""
    try:
        with tarfile.open(archive) as tar:
            # the filter refuses "..", links to outside and devices, and makes absolute names relative
            tar.extractall(folder, filter="data")
    except tarfile.FilterError as error:
        raise UserError(
            f"{archive} has {error.tarinfo.name!r}, which would be written outside its folder, so it is not used: "
            "delete the file and download it from its publisher."
        ) from error
    except (tarfile.TarError, EOFError) as error:
        raise UserError(f"{archive} is damaged ({error}): delete it and download it again.") from error

"""Download public datasets, checked by SHA-256, and unpack them inside their own folder."""

from __future__ import annotations

import logging
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pooch
import requests

from labkit.data.store import Progress, check_disk, prepare_once, prepared_root
from labkit.errors import UserError


@dataclass(frozen=True)
class Archive:
    """A file to download."""

    url: str
    size_bytes: int
    sha256: str


def fetch(name: str, archives: tuple[Archive, ...], *, root: Path | None = None, progress: Progress) -> Path:
    """The folder of a dataset, downloaded and unpacked there if it is not yet.

    Raises:
        UserError: a download fails, is not the published file, or does not fit on the disk.
    """
    root = (prepared_root() if root is None else root) / "downloads"
    folder = root / f"{name}-{archives[0].sha256[:16]}"

    def build(temporary: Path) -> None:
        check_disk(folder, 2 * sum(archive.size_bytes for archive in archives))  # packed and unpacked
        for number, archive in enumerate(archives):

            def part(fraction: float, text: str, number=number) -> None:
                progress((number + fraction) / len(archives), text)

            file = download(archive, root / "archives", part)
            part(1.0, f"{file.name}: unpack")
            unpack(file, temporary)
            file.unlink()

    return prepare_once(folder, build)


def download(archive: Archive, folder: Path, progress: Progress) -> Path:
    """Download a file into `folder`; it appears there only if its checksum is right.

    Raises:
        UserError: the server does not give the file, or gives another one than was published.
    """
    name = archive.url.rsplit("/", 1)[-1]
    pooch.get_logger().setLevel(logging.WARNING)
    bar = _Bar(name, archive.size_bytes, progress)
    try:
        downloader = pooch.HTTPDownloader(progressbar=bar, timeout=60)
        known_hash = f"sha256:{archive.sha256}"
        return Path(pooch.retrieve(archive.url, known_hash=known_hash, fname=name, path=folder, downloader=downloader))
    except requests.RequestException as error:
        raise UserError(
            f"Downloading {archive.url} failed: {error}. Check the network and run the command again; or "
            "download the file by other means, unpack it, and give its folder instead of the name."
        ) from error
    except ValueError as error:
        if "does not match the known hash" not in str(error):
            raise
        raise UserError(
            f"What {archive.url} sent is not the published file: its SHA-256 is not {archive.sha256}. "
            "The download was cut short or the file was changed; nothing was kept. Run the command again, and if "
            "it happens again get the file from another mirror and check it by that number."
        ) from error


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a tar archive into `folder`, and refuse one that would write or link anywhere else.

    Raises:
        UserError: a member that leaves the folder, or a damaged archive.
    """
    try:
        with tarfile.open(archive) as tar:
            # The filter refuses "..", links that lead out, and devices, and makes absolute names relative.
            tar.extractall(folder, filter="data")
    except tarfile.FilterError as error:
        raise UserError(
            f"{archive} holds {error.tarinfo.name!r}, which would be written outside its folder: nothing of it is "
            "used. Delete the file and get it from the publisher's own address."
        ) from error
    except (tarfile.TarError, EOFError) as error:
        raise UserError(f"{archive} is damaged ({error}): delete it and download it again.") from error


class _Bar:
    """What pooch calls while it downloads."""

    def __init__(self, name: str, total: int, progress: Progress):
        self._name, self._size, self._progress = name, total, progress
        self._done = 0
        self.total = total

    def update(self, size: int) -> None:
        self._done += size
        self._progress(min(1.0, self._done / self._size), f"{self._name}: {self._done / 1e6:,.0f} MB")

    def reset(self) -> None:
        self._done = 0

    def close(self) -> None:
        """Nothing to close; part of what pooch calls."""

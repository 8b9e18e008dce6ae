"""Where prepared data lives, and how it gets there once, whole, and only when its source changed.

A prepared dataset is a folder whose name ends in the fingerprint of everything that made it: the format's
version, the content of its source files, and the options. Opening it again is therefore a look at the
folder's name; a changed source has another fingerprint and is prepared anew beside the old one.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import platformdirs
from filelock import FileLock

from labkit.errors import UserError
from labkit.hardware import size_text

Progress = Callable[[float, str], None]
"""Called with the fraction done (0 to 1) and a few words on what is being done."""
END_BYTES = 2**25
"""How much of the head and of the tail of a source file is hashed (in a twentieth of a second)."""
CONTENTS = "contents.json"
"""In a prepared folder, what else is in it."""
SMALL_BYTES = 2**20
"""Files up to this size are hashed whenever prepared data is opened; a larger one is only held against its size."""


def prepared_root() -> Path:
    """The folder of everything prepared or downloaded: `$LABKIT_CACHE`, else the user's cache folder."""
    chosen = os.environ.get("LABKIT_CACHE")
    return Path(chosen).expanduser() if chosen else platformdirs.user_cache_path("labkit", appauthor=False)


def fingerprint(**parts) -> str:
    """A short name for a combination of JSON-able values: 16 hexadecimal digits, the same on every machine.

    >>> fingerprint(rows=10, seed=0) == fingerprint(seed=0, rows=10)
    True
    """
    canonical = json.dumps(parts, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def file_fingerprint(path: Path) -> str:
    """Of a file's size and content; of a large file's first and last bytes, and the time of its last change."""
    status = path.stat()
    with path.open("rb") as file:
        digest = hashlib.sha256(f"{status.st_size} ".encode() + file.read(END_BYTES))
        if status.st_size > 2 * END_BYTES:
            digest.update(str(status.st_mtime_ns).encode())
            file.seek(-END_BYTES, os.SEEK_END)
        digest.update(file.read(END_BYTES))
    return digest.hexdigest()


def tree_fingerprint(folder: Path, paths: Iterable[Path]) -> str:
    """A fingerprint of many files by name, size and time stamp, where reading them takes too long.

    Names are relative to `folder`; of files elsewhere the whole path counts.
    """
    listing = []
    for path in sorted(paths):
        status = path.stat()
        name = path.relative_to(folder) if path.is_relative_to(folder) else path
        listing.append((name.as_posix(), status.st_size, status.st_mtime_ns))
    return fingerprint(listing=listing)


def prepare_once(folder: Path, build: Callable[[Path], None]) -> Path:
    """Return `folder`, made by `build(temporary)` unless it is there already.

    The folder appears under its name only when it is complete, and is built anew where it was damaged since. Of several
    processes that want the same folder one builds it and the others wait; what a killed process left behind is removed
    by the next one.
    """
    if _is_whole(folder):
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = folder.with_name(f".{folder.name}.partial")
    with FileLock(folder.with_name(f".{folder.name}.lock")):
        if _is_whole(folder):
            return folder
        # We hold the lock: a partial folder can only be a dead process's.
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        try:
            build(temporary)
            write_json(temporary / CONTENTS, _contents(temporary))
            if folder.is_dir():
                shutil.rmtree(folder)
            temporary.replace(folder)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            raise _disk_full(folder, "ran out of disk") from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return folder


def _is_whole(folder: Path) -> bool:
    return folder.is_dir() and read_json(folder / CONTENTS) == _contents(folder)


def _contents(folder: Path) -> dict:
    """What a prepared folder contains: of each file its size, and of a small one its SHA-256."""
    files = [path for path in sorted(folder.iterdir()) if path.is_file() and path.name != CONTENTS]
    sizes = {path: path.stat().st_size for path in files}
    return {path.name: file_fingerprint(path) if size <= SMALL_BYTES else size for path, size in sizes.items()}


def check_disk(folder: Path, needed_bytes: float) -> int:
    """The free bytes of the disk that holds `folder`, or will once it is made."""
    if needed_bytes > free_disk_bytes(folder):
        raise _disk_full(folder, f"needs about {size_text(needed_bytes)}")
    return free_disk_bytes(folder)


def _disk_full(folder: Path, need: str) -> UserError:
    return UserError(
        f"Preparing the data {need}, and {folder.parent} has {size_text(free_disk_bytes(folder))} free. "
        "Free some space there, or set LABKIT_CACHE to a folder on a larger disk and run the command again."
    )


def free_disk_bytes(folder: Path) -> int:
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def read_json(path: Path) -> dict | None:
    """The JSON object in a file, or None where there is no such file or it is damaged."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, IsADirectoryError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def write_json(path: Path, value: dict) -> None:
    """Write a JSON object so that readers see the old file or the new one, never half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(value, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    temporary.replace(path)

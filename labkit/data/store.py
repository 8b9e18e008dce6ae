"""The cache of prepared data: each dataset is written once, completely, and again only if its source has changed; and
what happens to a row or utterance that cannot be used.

A prepared dataset is a folder whose name ends in the fingerprint of everything it was made from: the version of the
format, the content of the source files, and the options. A changed source has another fingerprint, and thus another
folder.
"""

import contextlib
import errno
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from labkit import DataError, UserError, errors, hardware, project

Progress = Callable[[float, str], None]
"""Called with the fraction done (0 to 1) and a short text on what is being done"""
END_BYTES = 2**25
"""Bytes at the beginning and at the end of a source file that are hashed (in a twentieth of a second)"""
META, CONTENTS = "meta.json", "contents.json"
"""Names of the description of a prepared folder, and of the list of its other files"""
SMALL_BYTES = 2**20
"""Files up to this size are hashed when prepared data is opened; of larger ones only the size is checked"""
prepared_root = project.cache_root
"""The folder of prepared and downloaded data: `$LABKIT_CACHE`, or else the user's cache folder"""


def fingerprint(**parts) -> str:
    """A short name for a combination of JSON-able values: 16 hexadecimal digits, the same on every machine.

    >>> fingerprint(rows=10, seed=0) == fingerprint(seed=0, rows=10)
    True
    """
    canonical = json.dumps(parts, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def file_fingerprint(path: Path) -> str:
    """A fingerprint of a file's size and content; for a large file of its ends and its modification time."""
    status = path.stat()
    with path.open("rb") as file:
        digest = hashlib.sha256(f"{status.st_size} ".encode() + file.read(END_BYTES))
        if status.st_size > 2 * END_BYTES:
            digest.update(str(status.st_mtime_ns).encode())
            file.seek(-END_BYTES, os.SEEK_END)
        digest.update(file.read(END_BYTES))
    return digest.hexdigest()


def tree_fingerprint(folder: Path, paths: Iterable[Path]) -> str:
    """A fingerprint of many files by name, size and modification time, because reading them would take too long.

    Names are relative to `folder`; files elsewhere count with their whole path.
    """
    listing = []
    for path in sorted(paths):
        status = path.stat()
        name = path.relative_to(folder) if path.is_relative_to(folder) else path
        listing.append((name.as_posix(), status.st_size, status.st_mtime_ns))
    return fingerprint(listing=listing)


def content_fingerprint(folder: Path, paths: Iterable[Path], **settings) -> str:
    """The fingerprint of data in a run's record: the files' content, wherever they lie and whenever they were written.

    Names are relative to `folder`, or the last part of the path. A file that cannot be read has no content.
    """
    contents = []
    for path in paths:
        name, content = path.relative_to(folder).as_posix() if path.is_relative_to(folder) else path.name, ""
        with contextlib.suppress(OSError), path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        contents.append((name, content))
    return fingerprint(contents=sorted(contents), **settings)


@errors.refusals()
def prepare_once(folder: Path, build: Callable[[Path], dict | None]) -> Path:
    """Return `folder`, made by `build(temporary)` unless it is there already. What `build` returns is its `meta.json`.

    The folder appears only when it is complete, and is built again if it has been damaged since. If several processes
    want the same folder, one builds it and the others wait. The remains of a killed process are removed by the next.
    """
    if _is_whole(folder):
        return folder
    from filelock import FileLock  # imports asyncio, which commands that prepare nothing need not wait for

    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = folder.with_name(f".{folder.name}.partial")
    with FileLock(folder.with_name(f".{folder.name}.lock")):
        if _is_whole(folder):
            return folder
        # this process has the lock, so a partial folder belongs to a process that died
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        try:
            if meta := build(temporary):
                _write_json(temporary / META, meta)
            _write_json(temporary / CONTENTS, _contents(temporary))
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


def read_meta(folder: Path) -> dict:
    """The content of the `meta.json` of a prepared folder."""
    return json.loads((folder / META).read_text(encoding="utf-8"))


def _write_json(path: Path, value: dict) -> None:
    path.write_text(json.dumps(value, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _is_whole(folder: Path) -> bool:
    try:
        return json.loads((folder / CONTENTS).read_text(encoding="utf-8")) == _contents(folder)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, ValueError, RecursionError):
        return False


def _contents(folder: Path) -> dict:
    """The files of a prepared folder, each with its size, or its SHA-256 if it is small."""
    files = [path for path in sorted(folder.iterdir()) if path.is_file() and path.name != CONTENTS]
    sizes = {path: path.stat().st_size for path in files}
    return {path.name: file_fingerprint(path) if size <= SMALL_BYTES else size for path, size in sizes.items()}


def check_disk(folder: Path, needed_bytes: float) -> int:
    """The free bytes on the disk of `folder`, which need not exist yet; a UserError if they are not enough."""
    free_bytes = free_disk_bytes(folder)
    if needed_bytes > free_bytes:
        raise _disk_full(folder, f"needs about {hardware.size_text(needed_bytes)}")
    return free_bytes


def _disk_full(folder: Path, need: str) -> UserError:
    return UserError(
        f"Preparing the data {need}, and {folder.parent} has {hardware.size_text(free_disk_bytes(folder))} free: free "
        "some space there, or set LABKIT_CACHE to a folder on a larger disk and run the command again."
    )


def free_disk_bytes(folder: Path) -> int:
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


LISTED = 100
"""Most skipped rows that are listed"""
FEW = 0.01
"""Share of the rows that the policy "few" skips; one row is always allowed"""
POLICIES = {
    "error": "stop at the first bad row",
    "few": f"skip and list one, or 1 in {1 / FEW:.0f}, and stop at more",
    "skip": "skip and list any number",
}
POLICY_WORDS = "; ".join(f"{name}: {words}" for name, words in POLICIES.items())

UNASKED = {"clicks": "error", "speech": "few"}
"""Policies of the commands: a table with a bad row is often the wrong table; most folders of recordings have one."""


class BadRows:
    """Raises an error for bad rows, or counts and lists them, according to one of `POLICIES`."""

    def __init__(self, policy: str):
        if policy not in POLICIES:
            raise UserError(f"on_bad_row is {policy!r}: choose one of {', '.join(POLICIES)} ({POLICY_WORDS}).")
        self.policy = policy
        self.count = 0
        self.first: list[dict] = []
        self._rows: int | None = None
        self.error: DataError | None = None
        """The first one"""

    def expect(self, rows: int) -> None:
        """Set the total number of rows, including the bad ones so far."""
        self._rows = rows
        self._refuse_many()

    def add(self, error: DataError) -> None:
        """Report a bad row."""
        self.error = self.error or error
        self.count += 1
        self._refuse_many()
        if len(self.first) < LISTED:
            place = {"file": str(error.file), "line": error.line, "field": error.field}
            self.first.append({**place, "reason": f"{error.what} {error.fix}"})

    def _refuse_many(self) -> None:
        error, many = self.error, ""
        if error is None or self.policy == "skip":
            return
        if self.policy == "few":
            if self._rows is None or self.count <= max(1, FEW * self._rows):
                return
            many = f" {self.count:,} of {self._rows:,} are bad so far, and at most {FEW:.0%} are skipped."
        fix = f"{error.fix}{many} Or pass --on-bad-row skip to skip such rows; they are counted and listed."
        raise DataError(error.what, fix=fix, file=error.file, line=error.line, field=error.field)

    def info(self) -> dict:
        """`{"rows": number of bad rows, "first": the first 100}`"""
        return {"rows": self.count, "first": self.first}

"""Files that hold either their old or their new content at every moment, and notes on what readers left out."""

from __future__ import annotations

import contextlib
import contextvars
import errno
import os
import shutil
import warnings
from collections.abc import Generator
from pathlib import Path

from labkit import UserError


@contextlib.contextmanager
def disk_full_as_user_error(folder: Path) -> Generator[None]:
    """Turn "no space left" inside the block into a UserError that names the folder, its free space and the fix."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        if not is_disk_full(error):
            raise
        raise UserError(
            f"{folder}: the disk is full ({shutil.disk_usage(folder).free / 2**20:.0f} MiB free); everything written "
            "before is intact. Free some space or choose a folder on another disk, then try again; a run that stopped "
            "here goes on with --resume."
        ) from error


def is_disk_full(error: BaseException | None) -> bool:
    """Whether an error, or its cause, says that there is no space left."""
    # torch.save wraps the system's error in a RuntimeError of its own
    return error is not None and (
        getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
        or is_disk_full(error.__cause__ or error.__context__)
    )


def temporary_of(path: Path) -> Path:
    """Path where this process writes the new content of a file."""
    return path.with_name(f".{path.name}.{os.getpid()}")


def replace_text(path: Path, text: str) -> None:
    """Write a text file in one step: a reader sees the old or the new content, even after a crash."""
    if path.exists() and not path.is_file():  # a pipe or a device, such as /dev/stdout, has no old content
        path.write_text(text, encoding="utf-8")
        return
    path = path.resolve()  # a link stays one
    temporary = temporary_of(path)
    try:
        with disk_full_as_user_error(path.parent), temporary.open("w", encoding="utf-8", newline="\n") as file:
            if path.exists():
                shutil.copymode(path, temporary)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


_collected: contextvars.ContextVar[list[str] | None] = contextvars.ContextVar("notes", default=None)


def note_left_out(path: Path, why: str) -> None:
    """Warn, once, that a run, a part or a line is left out."""
    note = why if why.startswith(str(path)) else f"{path}: {why}"
    notes = _collected.get()
    if notes is not None and note not in notes:
        notes.append(note)
    warnings.warn(f"left out: {note}", stacklevel=2)


@contextlib.contextmanager
def notes_kept() -> Generator[list[str]]:
    """Collect the notes of the block as well, for a page that is read elsewhere."""
    notes: list[str] = []
    token = _collected.set(notes)
    try:
        yield notes
    finally:
        _collected.reset(token)

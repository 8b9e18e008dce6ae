"""Notes of what a reader left out, because another program, a copy or a crash made it unreadable."""

from __future__ import annotations

import contextlib
import contextvars
import warnings
from collections.abc import Iterator
from pathlib import Path

_collected: contextvars.ContextVar[list[str] | None] = contextvars.ContextVar("notes", default=None)


def note_left_out(path: Path, why: str) -> None:
    """Warn, once, that a run, a part or a line is left out of what is shown."""
    note = why if why.startswith(str(path)) else f"{path}: {why}"
    notes = _collected.get()
    if notes is not None and note not in notes:
        notes.append(note)
    warnings.warn(f"left out: {note}", stacklevel=2)


@contextlib.contextmanager
def notes_kept() -> Iterator[list[str]]:
    """Keep the notes of the block, too: for a page that is read elsewhere."""
    notes: list[str] = []
    token = _collected.set(notes)
    try:
        yield notes
    finally:
        _collected.reset(token)

"""The phases of a step, announced to whoever watches them; to nobody, at the cost of a call."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

INPUT, TO_DEVICE, FORWARD, BACKWARD, OPTIMISER, SYNC = (
    "input",
    "host-to-device",
    "forward",
    "backward",
    "optimiser",
    "sync",
)
Watcher = Callable[[str], AbstractContextManager]
"""Is given a phase's name, and is entered and left with it."""

_NOBODY = contextlib.nullcontext()
_watcher: Watcher | None = None


def phase(name: str) -> AbstractContextManager:
    """The context of a phase of a step."""
    return _NOBODY if _watcher is None else _watcher(name)


@contextlib.contextmanager
def watched_by(watcher: Watcher) -> Iterator[None]:
    """Announce the phases to one watcher during the block."""
    global _watcher
    before, _watcher = _watcher, watcher
    try:
        yield
    finally:
        _watcher = before

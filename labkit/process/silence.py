"""Keeps what a library writes to the standard streams, from wherever in it, to itself."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Nothing that is printed, or that C++ writes to standard error, shows during the block."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)

"""Keeps what torch's profilers say to themselves off the user's screen."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator

CHATTER = {"KINETO_LOG_LEVEL": "99", "TORCH_CPP_LOG_LEVEL": "ERROR"}
"""Variables that silence it; the second one counts only where it is set before torch is imported."""


@contextlib.contextmanager
def without_lines_of(source: str) -> Iterator[None]:
    """Leave out the lines that a C++ file prints to stderr during the block."""
    sys.stderr.flush()
    try:
        kept = os.dup(2)
    except OSError:  # there is no stderr
        yield
        return
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            said.seek(0)
            for line in said.read().splitlines(keepends=True):
                if source.encode() not in line:
                    os.write(2, line)

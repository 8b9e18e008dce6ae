"""What a script finds in `sys` when it runs inside a process of ours."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path


@contextlib.contextmanager
def as_main(script: Path, arguments: Sequence[str]) -> Iterator[None]:
    """What `python script arguments` would find in sys."""
    argv, path = sys.argv, sys.path
    sys.argv = [str(script), *arguments]
    sys.path = [os.path.dirname(os.path.abspath(script)), *path]  # noqa: PTH100, PTH120  as Python itself does
    try:
        yield
    finally:
        sys.argv, sys.path = argv, path

"""Asking a run to stop, from any process or kernel that sees its folder."""

from __future__ import annotations

import time
from pathlib import Path

from labkit.errors import UserError
from labkit.runs.record import read_run

NAME = "stop-requested"
LOOK_EVERY_S = 0.25


def request_stop(folder: Path | str) -> None:
    """Ask the run in `folder` to end after its step under way, with everything saved.

    Raises:
        UserError: it is not running.
    """
    status = read_run(folder).status
    if status != "running":
        raise UserError(f"{folder}: this run is {status}, so there is nothing to stop.")
    (Path(folder) / NAME).touch()


class StopFile:
    """Looks for the request in a run's folder, a few times a second however often it is asked."""

    def __init__(self, folder: Path):
        self._path, self._looked_at, self._found = folder / NAME, 0.0, False
        self._path.unlink(missing_ok=True)  # asked of an earlier process of this run

    def __bool__(self) -> bool:
        now = time.monotonic()
        if not self._found and now - self._looked_at >= LOOK_EVERY_S:
            self._looked_at, self._found = now, self._path.exists()
        return self._found

"""The folder of jobs that belong together, a plan's or a queue's: their run folders and logs lie in it."""

from __future__ import annotations

import datetime
import secrets
from pathlib import Path

from labkit.errors import UserError


def new_jobs_folder(runs_dir: Path, kind: str, name: str) -> Path:
    """Make a folder whose name sorts by time (UTC), with a folder for logs in it.

    Args:
        runs_dir: the folder that it is made in.
        kind: "group" or "queue".
        name: of the plan or queue; what no file's name should hold becomes a dash.

    Raises:
        UserError: no folder can be made there.
    """
    now = datetime.datetime.now(datetime.UTC).strftime("%Y%m%d-%H%M%S")
    safe = "".join(char if char.isalnum() else "-" for char in name)[:40]
    folder = Path(runs_dir) / f"{now}-{kind}-{safe}-{secrets.token_hex(2)}"
    try:
        (folder / "logs").mkdir(parents=True)
    except OSError as error:
        raise UserError(
            f"{runs_dir}: no folder can be made there ({error.strerror}): choose another --runs-dir."
        ) from error
    return folder

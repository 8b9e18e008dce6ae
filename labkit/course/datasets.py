"""Prepares what notebooks train on before they are timed; it is done once a machine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable

from labkit.data.catalog import list_datasets
from labkit.errors import UserError


def prepare_data(names: Iterable[object], say: Callable[[str], None]) -> None:
    """Prepare each dataset that comes with labkit and is not prepared yet; other names are left to the notebooks.

    Raises:
        UserError: it failed; the text says why.
    """
    wanted = set(names)
    for dataset in list_datasets():
        if dataset.name in wanted and dataset.state() in ("on first use", "shipped"):
            say(f"preparing {dataset.name}, which is done once ...")
            command = [sys.executable, "-m", "labkit", "data", "prepare", dataset.name]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise UserError(f"{dataset.name} could not be prepared:\n{done.stderr.strip()}")

"""Processes of light jobs."""

from __future__ import annotations

import sys
from pathlib import Path

from labkit.process.supervised import JobProcess

PROGRAM = Path(__file__).with_name("light_job.py")


def processes_of(folder: Path, *hows: str) -> list[JobProcess]:
    """A light job for each way to behave."""
    return [
        JobProcess(
            f"job-{number}",
            (sys.executable, str(PROGRAM)),
            {"name": f"job-{number}", "how": how.split()},
            log=str(folder / f"job-{number}.log"),
        )
        for number, how in enumerate(hows)
    ]

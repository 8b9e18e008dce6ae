"""Orders for light jobs."""

from __future__ import annotations

import sys
from pathlib import Path

from labkit.collocation.launching.job_command import JobCommand

PROGRAM = Path(__file__).with_name("light_job.py")


def commands_of(folder: Path, *hows: str) -> list[JobCommand]:
    """A light job for each way to behave."""
    return [
        JobCommand(
            job={"name": f"job-{number}", "arguments": how.split()},
            runs_dir=str(folder),
            device="cpu",
            log=str(folder / f"job-{number}.log"),
            program=[sys.executable, str(PROGRAM)],
        )
        for number, how in enumerate(hows)
    ]

"""What the keeper is told to start."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, field
from typing import Any

JOB_PROGRAM = "labkit.collocation.launching.job_process"


@dataclass(frozen=True)
class JobCommand:
    """The process of one job."""

    job: dict[str, Any]
    """`PlannedJob.to_dict()`"""
    runs_dir: str
    """Folder in which the run folders are made"""
    device: str
    """What torch calls the device in this process"""
    log: str
    """File that its standard error, and a script's output, goes to"""
    environment: dict[str, str] = field(default_factory=dict)
    """Beside this process' own; an empty value takes a variable away"""
    cores: list[int] | None = None
    """CPU cores that it and all it starts are bound to"""
    memory_bytes: int | None = None
    """Cap of its partition"""
    program: list[str] = field(default_factory=lambda: [sys.executable, "-m", JOB_PROGRAM])
    """What is started; it is given the rest of this as the first line of its standard input"""

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-able data."""
        return asdict(self)

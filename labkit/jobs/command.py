"""From a job's name and its settings to the command that runs it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from labkit.errors import UserError
from labkit.hardware import parse_budget
from labkit.jobs.presets import JOBS
from labkit.tracking import ScriptCommand


def job_command(
    job: str,
    *,
    budget: str | None = None,
    runs_dir: Path | str = "runs",
    sample_hz: float | None = None,
    **settings: Any,
) -> ScriptCommand:
    """The command of a job: "dlrm", "speech", or the path of a script, with the script's flags by name as `settings`.

    >>> job_command("dlrm", seed=1, max_seconds=None).arguments
    ('--seed', '1')
    """
    return ScriptCommand(
        str(script_of(job)),
        as_flags(settings),
        runs_dir=str(runs_dir),
        budget=budget and parse_budget(budget),
        sample_hz=sample_hz,
    )


def as_flags(settings: dict[str, Any]) -> tuple[str, ...]:
    """Settings as a command line; None leaves one out."""
    flags: list[str] = []
    for name, value in settings.items():
        if value is not None:
            flags += [f"--{name.replace('_', '-')}", str(value)]
    return tuple(flags)


def script_of(job: str) -> Path:
    """The file of one of the kit's jobs, or of a script; a `UserError` where there is neither."""
    if job in JOBS:
        return Path(__file__).with_name(f"{job}.py")
    if not Path(job).is_file():
        raise UserError(f"job {job!r} is unknown: choose one of {', '.join(JOBS)}, or name a Python file.")
    return Path(job)

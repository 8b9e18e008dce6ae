"""Trains in a process of its own and prints how it goes: the notebooks' way to start a run."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

from labkit.errors import UserError
from labkit.jobs.command import job_command
from labkit.tracking.command import ScriptCommand
from labkit.tracking.events import read_event
from labkit.tracking.launch import LaunchedRun, WorkerFailed
from labkit.tracking.progress_line import ProgressLine


def watch(
    job: str | ScriptCommand,
    runs_dir: Path | str = "runs",
    *,
    evaluations: bool = True,
    shows_output: bool = False,
    **settings: Any,
) -> dict[str, Any]:
    """Train to the end and print a line at the start, for evaluations, and at the end.

    Interrupting the kernel stops the run politely; what it did until then stays in its folder.

    Args:
        job: "dlrm", "speech", the path of a script, or a whole command.
        runs_dir: the folder that the run folder is made in.
        evaluations: whether to print evaluations, at most one a second.
        shows_output: whether to show what the script prints, too, on standard error.
        settings: `budget`, and the script's flags by name.

    Returns:
        `{"run", "folder", "status", "result"}`, as `labkit train --json` prints it.

    Raises:
        UserError: the run was refused.
        RunFailed: it diverged.
        KeyboardInterrupt: after the run has stopped.
    """
    command = job if isinstance(job, ScriptCommand) else job_command(job, runs_dir=runs_dir, **settings)
    line = ProgressLine(sys.stdout, evaluations=evaluations)
    with LaunchedRun(command, shows_output) as launched:
        try:
            _follow(launched, line)
        except KeyboardInterrupt:
            launched.stop()
            with contextlib.suppress(UserError, WorkerFailed):  # as where it had not begun
                _follow(launched, line)
            raise
    return launched.answer


def _follow(launched: LaunchedRun, line: ProgressLine) -> None:
    for event in launched.events():
        line(launched.answer if event["kind"] == "Ended" else read_event(event))

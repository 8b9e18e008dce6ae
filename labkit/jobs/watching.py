"""The notebooks' way to start a run: in a process of its own, watched to its end or left to go on."""

from __future__ import annotations

import contextlib
import math
import sys
import threading
from pathlib import Path
from typing import Any

from labkit.errors import UserError
from labkit.jobs.command import job_command
from labkit.tracking import LaunchedRun, ProgressLine, ScriptCommand, WorkerFailed, read_event


def watch(
    job: str | ScriptCommand,
    runs_dir: Path | str = "runs",
    *,
    evaluations: bool = True,
    shows_output: bool = False,
    train_s: float | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Train to the end and print a line at the start, for evaluations, and at the end.

    Interrupting the kernel stops the run politely; what it did until then stays in its folder.

    Args:
        job: "dlrm", "speech", the path of a script, or a whole command.
        runs_dir: the folder that the run folder is made in.
        evaluations: whether to print evaluations, at most one a second.
        shows_output: whether to show what the script prints, too, on standard error.
        train_s: seconds of training after which it is stopped; None lets it go on to its own end.
        settings: `budget`, and the script's flags by name.

    Returns:
        `{"run", "folder", "status", "result"}`, as `labkit train --json` prints it.
    """
    command = job if isinstance(job, ScriptCommand) else job_command(job, runs_dir=runs_dir, **settings)
    line = ProgressLine(sys.stdout, evaluations=evaluations)
    with LaunchedRun(command, shows_output) as launched:
        try:
            _follow(launched, line, train_s or math.inf)
        except KeyboardInterrupt:
            launched.stop()
            with contextlib.suppress(UserError, WorkerFailed):  # as where it had not begun
                _follow(launched, line)
            raise
    return launched.answer


def _follow(launched: LaunchedRun, line: ProgressLine, train_s: float = math.inf) -> None:
    for event in launched.events():
        line(launched.answer if event["kind"] == "Ended" else read_event(event))
        if event["kind"] == "Progress" and event["point"]["train_s"] >= train_s:
            launched.stop()


class BackgroundRun:
    """A run in a process of its own, followed by a thread; leaving the notebook's kernel ends it politely."""

    def __init__(self, job: str, runs_dir: Path | str = "runs", **settings: Any):
        """Start it; the call returns at once. Arguments as those of `watch`."""
        self._launched = LaunchedRun(job_command(job, runs_dir=runs_dir, **settings)).start()
        self._folder: Path | None = None
        self._error: BaseException | None = None
        self._has_folder = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        try:
            with contextlib.ExitStack() as stack:
                stack.push(self._launched)
                for event in self._launched.events():
                    if event["kind"] == "Started":
                        self._folder = Path(event["folder"])
                        self._has_folder.set()
        except BaseException as error:  # raised where it is waited for
            self._error = error
        finally:
            self._has_folder.set()

    @property
    def folder(self) -> Path:
        """The run folder; waits until it is there, or raises why it will not be."""
        self._has_folder.wait()
        if self._folder is None:
            raise self._error
        return self._folder

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        """Ask the run to end after its step under way."""
        self._launched.stop()

    def wait(self) -> dict[str, Any]:
        """Wait for the end; the answer, or what was raised, is that of `watch`."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._launched.answer

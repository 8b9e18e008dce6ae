"""A run that goes on while the notebook does something else."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import Any

from labkit.jobs.command import job_command
from labkit.tracking.launch import LaunchedRun


class BackgroundRun:
    """A run in a process of its own, followed by a thread; leaving the notebook's kernel ends it politely."""

    def __init__(self, job: str, runs_dir: Path | str = "runs", **settings: Any):
        """Start it; the call returns at once. Arguments as those of `watch`."""
        command = job_command(job, runs_dir=runs_dir, **settings)
        self._launched = LaunchedRun(command).start()  # the thread below leaves it
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
        """The run folder; waits until it is there, which takes as long as preparing the data does.

        Raises:
            UserError: the run was refused.
        """
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
        """Wait for the end.

        Returns:
            `{"run", "folder", "status", "result"}`, as `labkit train --json` prints it.

        Raises:
            UserError: the run was refused, or cut short.
        """
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._launched.answer

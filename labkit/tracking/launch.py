"""Launches a script in a process of its own, under its budget from the first import on, and listens to it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

from labkit.errors import UserError
from labkit.process import Child
from labkit.runs import fail_killed
from labkit.tracking.command import ScriptCommand
from labkit.tracking.ending import RunFailed


class WorkerFailed(RuntimeError):
    """The process of a run ended without an answer, or its script raised an error."""


class LaunchedRun(Child):
    """A run under way in another process; asked to `stop`, it ends after its step and records that it was stopped."""

    def __init__(self, command: ScriptCommand, shows_output: bool = False):
        """With `shows_output`, what the script prints goes to standard error; else its end is told where it fails."""
        super().__init__("labkit.tracking.worker", command.to_dict(), shows_errors=shows_output)
        self.command = command
        self.answer: dict[str, Any] | None = None
        """`{"run", "folder", "status", "result"}`, once `events` is through."""
        self.failure: dict[str, Any] = {}
        """What its process told of why it failed: status ("failed" or "out_of_memory"), reason, refused (its user can
        mend it), disk_full, exit_code (of a script that had no run); empty where it told nothing"""
        self._was_killed = False

    def kill(self) -> None:
        """End the process at once; `events` then says so."""
        self._was_killed = True
        super().kill()

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield what happens, each event a dictionary whose "kind" names its class in `labkit.tracking.events`."""
        folder = None
        for event in self.messages():
            folder = event["folder"] if event["kind"] == "Started" else folder
            if event["kind"] == "Failed":
                self.failure = event
                if event["answer"] is not None:
                    raise RunFailed(event["reason"], event["answer"])
                if event["refused"]:
                    raise UserError(event["reason"])
                raise WorkerFailed(f"{self.command.script}: {event['reason']}\n{self.stderr_tail()}")
            if event["kind"] == "Ended":
                self.answer = {name: value for name, value in event.items() if name != "kind"}
            yield event
        if self.answer is None:
            status = self.status()
            # it crashed, or the system had no memory
            if status is not None and status < 0 and folder is not None and not self._was_killed:
                fail_killed(folder, f"its process was ended by {signal.Signals(-status).name}")
            arguments = " ".join(self.command.arguments)
            raise WorkerFailed(
                f"the process of {self.command.script} {arguments} ended with status {status}:\n{self.stderr_tail()}"
            )

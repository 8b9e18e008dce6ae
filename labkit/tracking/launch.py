"""Launches a script in a process of its own, under its budget from the first import on, and listens to it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from labkit.errors import UserError
from labkit.hardware.budgets.names import parse_budget
from labkit.process.containment import end_killed
from labkit.runs.process import OUT_OF_CTRL_C
from labkit.runs.writer import fail_killed
from labkit.tracking.command import ScriptCommand
from labkit.tracking.ending import RunFailed


class WorkerFailed(RuntimeError):
    """The process of a run ended without an answer, or its script raised an error."""


@dataclass
class LaunchedRun:
    """A run under way in another process; a context manager that leaves no process behind."""

    command: ScriptCommand
    shows_output: bool = False
    """Whether what the script prints goes to standard error; else its end is told where it fails"""
    answer: dict[str, Any] | None = field(default=None, init=False)
    """`{"run", "folder", "status", "result"}`, once `events` is through."""

    def __enter__(self) -> LaunchedRun:
        environment = dict(os.environ)
        if self.command.budget is not None:
            environment |= parse_budget(self.command.budget).environment()
        self._was_killed = False
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "labkit.tracking.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if self.shows_output else self._errors,
            text=True,
            encoding="utf-8",
            env=environment,
            **OUT_OF_CTRL_C,
        )
        with contextlib.suppress(BrokenPipeError):  # a process that ended at once says why in `events`
            self._process.stdin.write(json.dumps(self.command.to_dict()) + "\n")
            self._process.stdin.flush()
        return self

    def __exit__(self, *exception) -> None:
        self.stop()
        try:
            self._process.wait(timeout=30)
        except BaseException as error:
            self._process.kill()
            end_killed(self._process)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
        finally:
            self._process.stdout.close()
            self._errors.close()

    def stop(self) -> None:
        """Ask the run to end after its step under way; it saves and records that it was stopped."""
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    def kill(self) -> None:
        """End the process at once; `events` then says so."""
        self._was_killed = True
        self._process.kill()

    def output(self) -> str:
        """The end of what the script has printed so far."""
        self._errors.seek(0)
        return self._errors.read()[-4000:]

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield what happens, each event a dictionary whose "kind" names its class in `labkit.tracking.events`.

        Raises:
            UserError: the run was refused.
            RunFailed: it diverged, or was cut short.
            WorkerFailed: the script raised an error, or the process was killed.
        """
        folder = None
        for line in self._process.stdout:
            event = json.loads(line)
            folder = event["folder"] if event["kind"] == "Started" else folder
            if event["kind"] == "Failed":
                if event["answer"] is not None:
                    raise RunFailed(event["reason"], event["answer"])
                if event["refused"]:
                    raise UserError(event["reason"])
                raise WorkerFailed(f"{self.command.script}: {event['reason']}\n{self.output()}")
            if event["kind"] == "Ended":
                self.answer = {name: value for name, value in event.items() if name != "kind"}
            yield event
        if self.answer is None:
            status = self._process.wait()
            if status < 0 and folder is not None and not self._was_killed:  # it crashed, or the system had no memory
                fail_killed(folder, f"its process was ended by {signal.Signals(-status).name}")
            arguments = " ".join(self.command.arguments)
            raise WorkerFailed(
                f"the process of {self.command.script} {arguments} ended with status {status}:\n{self.output()}"
            )

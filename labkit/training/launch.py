"""Launches a training run in a process of its own, under its budget from the first import on, and listens to it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labkit.errors import UserError
from labkit.hardware.budgets.names import parse_budget
from labkit.runs.process import OUT_OF_CTRL_C
from labkit.training.request import TrainRequest
from labkit.training.session import RunFailed


class WorkerFailed(RuntimeError):
    """The process of a run ended without an answer."""


@dataclass
class LaunchedRun:
    """A run under way in another process; a context manager that leaves no process behind."""

    request: TrainRequest
    runs_dir: Path
    answer: dict[str, Any] | None = field(default=None, init=False)
    """What `training.session.train` returned, once `events` is through."""

    def __enter__(self) -> LaunchedRun:
        environment = dict(os.environ)
        if self.request.budget is not None:
            environment |= parse_budget(self.request.budget).environment()
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "labkit.training.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            encoding="utf-8",
            env=environment,
            **OUT_OF_CTRL_C,
        )
        content = {"request": self.request.to_dict(), "runs_dir": str(self.runs_dir)}
        with contextlib.suppress(BrokenPipeError):  # a process that ended at once says why in `events`
            self._process.stdin.write(json.dumps(content) + "\n")
            self._process.stdin.flush()
        return self

    def __exit__(self, *exception) -> None:
        self.stop()
        try:
            self._process.wait(timeout=30)
        except BaseException as error:
            self._process.kill()
            self._process.wait()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
        finally:
            self._process.stdout.close()
            self._errors.close()

    def stop(self) -> None:
        """Ask the run to end after its step under way; it saves and records that it was stopped."""
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield what happens, each event a dictionary whose "kind" names its class in `announcements` or `loop`.

        Raises:
            UserError: the run was refused.
            RunFailed: it diverged.
            WorkerFailed: the process ended on an error of ours, or was killed.
        """
        for line in self._process.stdout:
            event = json.loads(line)
            if event["kind"] == "Refused":
                raise UserError(event["text"])
            if event["kind"] == "Failed":
                raise RunFailed(event["text"], event["answer"])
            if event["kind"] == "Ended":
                self.answer = {name: value for name, value in event.items() if name != "kind"}
            yield event
        if self.answer is None:
            status = self._process.wait()
            self._errors.seek(0)
            raise WorkerFailed(
                f"the process of {self.request.job} with seed {self.request.seed} ended with status {status}:\n"
                f"{self._errors.read()[-4000:]}"
            )

"""The launcher's side of the supervisor: orders go in, events come out, and leaving the block leaves no process."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from labkit.errors import UserError
from labkit.process.containment import DAEMON, GONE_S, MARK, end_killed, kill_until_gone, marked, wait_until_gone
from labkit.process.supervisor import DAEMON_ENDS_S, POLITE_S, TERM_S, TIDY_S, event_of
from labkit.runs.process import OUT_OF_CTRL_C

MPS_S = 60.0
"""For our MPS daemon to start or to say why not."""
MORE_S = 2.0
"""The supervisor has this much longer than all its deadlines together."""


class SupervisorDied(RuntimeError):
    """The supervisor ended without an order; all its jobs are gone."""


@dataclass(frozen=True)
class JobProcess:
    """The process of one job."""

    name: str
    program: tuple[str, ...]
    """Its command line"""
    content: dict[str, Any]
    """What it is told to do: the first line of its standard input, as JSON"""
    log: str
    """File that its standard error goes to"""
    environment: dict[str, str] = field(default_factory=dict)
    """Beside this process' own; an empty value takes a variable away"""


def how_ended(event: dict[str, Any]) -> str:
    """How the process of a job ended that had no word to say, by its "ended" event."""
    status = event["status"]
    if status is None:
        return "its process does not end"
    if status < 0:
        return f"its process was ended by {signal.Signals(-status).name}"
    return f"its process ended with status {status} without a word; its log says more"


class SupervisedJobs:
    """Jobs under a supervisor of their own; a context manager."""

    def __init__(self, polite_s: float = POLITE_S):
        """A job that is to end has `polite_s` to save what it has; then it is told by SIGTERM, and then killed."""
        self._polite_s = polite_s
        self.alive = False
        """Whether there is a supervisor to give orders to"""

    def __enter__(self) -> SupervisedJobs:
        if sys.platform == "win32":
            raise UserError("Jobs are started together on Linux and macOS only: on Windows, use WSL.")
        self.mark = secrets.token_hex(8)
        self._events: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "labkit.process.supervisor", str(self._polite_s)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=os.environ | {MARK: self.mark},
            **OUT_OF_CTRL_C,
        )
        threading.Thread(target=self._listen, daemon=True).start()
        self.alive = True
        return self

    def start(self, job: JobProcess) -> None:
        """Start a job; it comes as far as its first step and waits there for `go`."""
        self._order(do="start", **asdict(job))

    def go(self, *names: str) -> None:
        """Let jobs take their first step, all at once."""
        for name in names:
            self._order(do="go", job=name)

    def end(self, name: str) -> None:
        """Ask a job to end, politely first; all that it started ends with it."""
        self._order(do="end", job=name)

    def kill(self, name: str) -> None:
        """Kill a job and all that it started, at once."""
        self._order(do="kill", job=name)

    def remove_at_end(self, path: Path) -> None:
        """Remove a file or folder at the end, even should this process be killed before it could."""
        self._order(do="remove_at_end", path=str(path))

    def sweep(self) -> list[int]:
        """Kill what jobs that ended have left, and end the MPS daemon; the processes that would not go.

        Raises:
            SupervisorDied: the supervisor was killed.
        """
        self._order(do="sweep")
        event = self._answer("swept", 3 * GONE_S + DAEMON_ENDS_S)
        return [] if event is None else event["left"]

    def start_mps(self, gpus: Sequence[str]) -> dict[str, str]:
        """Start an MPS daemon for the next jobs, ended by `sweep`; the variables of its clients.

        Args:
            gpus: UUIDs of those that it is to serve.

        Raises:
            UserError: it does not start.
        """
        self._order(do="mps", gpus=list(gpus))
        event = self._answer("mps", MPS_S)
        if event is None:
            raise UserError(f"CUDA MPS does not start: it said nothing for {MPS_S:g} s.")
        if "why_not" in event:
            raise UserError(event["why_not"])
        return event["environment"]

    def next_event(self, timeout_s: float) -> dict[str, Any] | None:
        """The next started (pid), told (event) or ended (status, asked, left, still), with its job; None in time.

        Where even SIGKILL did not end a job, its status is None, left has the numbers of such processes, and still
        says of each in which state it is.

        Raises:
            SupervisorDied: the supervisor was killed; its jobs have been killed by now.
        """
        try:
            event = self._events.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if event is None:
            self.alive = False
            self._kill_marked()
            self._errors.seek(0)
            raise SupervisorDied(
                f"the supervisor of the jobs ended with status {self._process.wait()}, and they with it: "
                f"{self._errors.read()[-2000:].strip() or 'it said nothing'}"
            )
        return event

    def _answer(self, kind: str, timeout_s: float) -> dict[str, Any] | None:
        """The event that answers an order; others that come before it are of jobs that have ended."""
        until = time.monotonic() + timeout_s
        while (left_s := until - time.monotonic()) > 0:
            event = self.next_event(left_s)
            if event is not None and event["kind"] == kind:
                return event
        return None

    def __exit__(self, *exception) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._process.stdin.close()
        try:
            self._process.wait(self._polite_s + TERM_S + 2 * TIDY_S + 3 * GONE_S + DAEMON_ENDS_S + MORE_S)
        except BaseException as error:
            self._process.kill()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
        finally:
            self.alive = False
            self._kill_marked()
            end_killed(self._process)
            self._errors.close()

    def _order(self, **order: Any) -> None:
        with contextlib.suppress(OSError, ValueError):  # the next event tells that it has died
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()

    def _listen(self) -> None:
        over = False
        try:
            with self._process.stdout as stream:
                for line in stream:
                    event = event_of(line)  # what a library prints at its start is none
                    over = over or event.get("kind") == "over"
                    if event and not over:
                        self._events.put(event)
        finally:
            if not over:
                self._events.put(None)

    def _kill_marked(self) -> None:
        """Kill what the supervisor left, should it have been killed itself."""
        wait_until_gone(lambda: marked(self.mark, but=DAEMON), TIDY_S)
        kill_until_gone(lambda: marked(self.mark, but=DAEMON))
        wait_until_gone(lambda: marked(self.mark, DAEMON), DAEMON_ENDS_S)  # its guard lost its input, too
        kill_until_gone(lambda: marked(self.mark))

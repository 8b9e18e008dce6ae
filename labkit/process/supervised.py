"""The launcher's side of the supervisor: orders go in, events come out, and leaving the block leaves no process."""

from __future__ import annotations

import secrets
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from labkit.errors import UserError
from labkit.process.child import Child
from labkit.process.containment import DAEMON, GONE_S, MARK, kill_until_gone, marked, wait_until_gone
from labkit.process.supervisor import DAEMON_ENDS_S, POLITE_S, TERM_S, TIDY_S

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
        self._child = Child(
            "labkit.process.supervisor",
            {"polite_s": self._polite_s},
            environment={MARK: self.mark},
            polite_s=self._polite_s + TERM_S + 2 * TIDY_S + 3 * GONE_S + DAEMON_ENDS_S + MORE_S,
        ).start()
        self.alive = True
        return self

    def start(self, job: JobProcess) -> None:
        """Start a job; it comes as far as its first step and waits there for `go`."""
        self._child.send({"kind": "start", **asdict(job)})

    def go(self, *names: str) -> None:
        """Let jobs take their first step, all at once."""
        for name in names:
            self._child.send({"kind": "go", "job": name})

    def end(self, name: str) -> None:
        """Ask a job to end, politely first; all that it started ends with it."""
        self._child.send({"kind": "end", "job": name})

    def kill(self, name: str) -> None:
        """Kill a job and all that it started, at once."""
        self._child.send({"kind": "kill", "job": name})

    def remove_at_end(self, path: Path) -> None:
        """Remove a file or folder at the end, even should this process be killed before it could."""
        self._child.send({"kind": "remove_at_end", "path": str(path)})

    def sweep(self) -> list[int]:
        """Kill what jobs that ended have left, and end the MPS daemon; the processes that would not go.

        Raises:
            SupervisorDied: the supervisor was killed.
        """
        event = self._answer({"kind": "sweep"}, "swept", 3 * GONE_S + DAEMON_ENDS_S)
        return [] if event is None else event["left"]

    def start_mps(self, gpus: Sequence[str]) -> dict[str, str]:
        """Start an MPS daemon for the next jobs, ended by `sweep`; the variables of its clients.

        Args:
            gpus: UUIDs of those that it is to serve.

        Raises:
            UserError: it does not start.
        """
        event = self._answer({"kind": "mps", "gpus": list(gpus)}, "mps", MPS_S)
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
            return self._child.next_message(timeout_s)
        except EOFError:
            self.alive = False
            self._kill_marked()
            raise SupervisorDied(
                f"the supervisor of the jobs ended with status {self._child.status()}, and they with it: "
                f"{self._child.last_words().strip() or 'it said nothing'}"
            ) from None

    def _answer(self, order: dict[str, Any], kind: str, timeout_s: float) -> dict[str, Any] | None:
        """The event that answers an order; others that come before it are of jobs that have ended."""
        self._child.send(order)
        until = time.monotonic() + timeout_s
        while (left_s := until - time.monotonic()) > 0:
            event = self.next_event(left_s)
            if event is not None and event["kind"] == kind:
                return event
        return None

    def __exit__(self, *exception) -> None:
        self.alive = False
        try:
            self._child.end()
        finally:
            self._kill_marked()

    def _kill_marked(self) -> None:
        """Kill what the supervisor left, should it have been killed itself."""
        wait_until_gone(lambda: marked(self.mark, but=DAEMON), TIDY_S)
        kill_until_gone(lambda: marked(self.mark, but=DAEMON))
        wait_until_gone(lambda: marked(self.mark, DAEMON), DAEMON_ENDS_S)  # its guard lost its input, too
        kill_until_gone(lambda: marked(self.mark))

"""What goes on among the clients of a fault experiment, as it is heard from their supervisor."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labkit.errors import UserError
from labkit.process.supervised import JobProcess, SupervisedJobs, how_ended

LISTEN_S = 0.02
"""So late at most a moment is noticed."""
PATIENCE_S = 120.0
"""What is waited for has happened by then, also on a slow machine: else the experiment is given up."""


@dataclass
class Client:
    """One client, as far as it is known; moments are those of `time.monotonic`."""

    ready: bool = False
    steps: list[tuple[float, int]] = field(default_factory=list)
    """When it had taken how many"""
    fails_at: float | None = None
    """When it began to fail, if that was its own doing"""
    ended_at: float | None = None
    status: str = "alive"
    """alive, done, failed, out_of_memory, or killed"""
    reason: str = ""


class Scene:
    """The clients by name, kept up to date while `until` or `watch` runs."""

    def __init__(self, supervised: SupervisedJobs, folder: Path):
        self.supervised, self.folder = supervised, folder
        self.clients: dict[str, Client] = {}
        self.left: list[int] = []
        """Processes that the supervisor could not end"""
        self._pids: dict[str, int] = {}
        self._over: set[str] = set()
        """Clients whose process has ended"""

    def start(self, process: JobProcess) -> None:
        """Start a client, which then waits for its cue."""
        self.clients[process.name] = Client()
        self.supervised.start(process)

    def living(self) -> list[str]:
        """Clients whose process has not ended."""
        return [name for name in self.clients if self.lives(name)]

    def lives(self, name: str) -> bool:
        return name not in self._over

    def terminate(self, name: str) -> None:
        """Send SIGTERM to a client."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pids[name], signal.SIGTERM)

    def until(self, happened: Callable[[], bool], what: str) -> float:
        """Listen until something has happened; the moment.

        Raises:
            UserError: it did not happen in time; with the clients' last words.
        """
        give_up = time.monotonic() + PATIENCE_S
        while not happened():
            if time.monotonic() > give_up:
                raise UserError(
                    f"The fault experiment was given up: {what} did not happen in {PATIENCE_S:g} s. {self.last_words()}"
                )
            self._listen()
        return time.monotonic()

    def watch(self, seconds: float) -> tuple[float, float]:
        """Listen for so long; the moments it began and ended."""
        begin = time.monotonic()
        while time.monotonic() < begin + seconds:
            self._listen()
        return begin, time.monotonic()

    def _listen(self) -> None:
        event = self.supervised.next_event(LISTEN_S)
        if event is None:
            return
        name, client = event["job"], self.clients[event["job"]]
        if event["kind"] == "started":
            self._pids[name] = event["pid"]
        elif event["kind"] == "told":
            self._hear(client, event["event"])
        elif event["kind"] == "ended":
            self._over.add(name)
            self.left += event["left"]
            if client.ended_at is None:
                killed = event["status"] is not None and event["status"] < 0
                self._end(client, "killed" if killed else "failed", how_ended(event))

    def _hear(self, client: Client, told: dict[str, Any]) -> None:
        if told["kind"] == "Ready":
            client.ready = True
        elif told["kind"] in ("Steps", "Fails"):
            client.steps.append((told["at_s"], told["steps"]))
            if told["kind"] == "Fails":
                client.fails_at = told["at_s"]
        elif told["kind"] in ("Ended", "Failed"):
            self._end(client, told["status"], told.get("reason", ""))

    def _end(self, client: Client, status: str, reason: str) -> None:
        client.ended_at, client.status, client.reason = time.monotonic(), status, reason

    def last_words(self) -> str:
        """The end of each log, for messages."""
        last = {
            path.stem: path.read_text(errors="replace").strip()[-300:] for path in sorted(self.folder.glob("*.log"))
        }
        return " ".join(f"{name} said: {words}" for name, words in last.items() if words)

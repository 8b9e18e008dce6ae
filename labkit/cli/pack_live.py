"""A queue as it runs: devices and their jobs on a terminal, a line an event elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

from rich.text import Text

from labkit.cli.collocate_live import words_of
from labkit.cli.console import Console
from labkit.cli.live import LiveDisplay

if TYPE_CHECKING:
    from labkit.collocation.launching.round import JobEvent
    from labkit.collocation.packing.queued_job import QueuedJob


class QueueDisplay(LiveDisplay):
    """Shows who runs where, how many wait, and each end."""

    def __init__(self, console: Console, queue: Sequence[QueuedJob], policy: str):
        super().__init__(console)
        self.policy, self.jobs = policy, len(queue)
        self._running: dict[str, tuple[str, str]] = {}
        """Device of each job that has one, and what it does"""
        self._ended = 0
        self._began_s = time.monotonic()

    def __enter__(self) -> Self:
        self.console.print(f"{self.policy}: {self.jobs} jobs", style="bold")
        return super().__enter__()

    def show(self, event: JobEvent) -> None:
        """Take an event of `run_queue`."""
        kind, told = event.event["kind"], event.event
        if kind == "Placed":
            self._place(event.job, told)
        elif kind == "Over":
            self._end(event.job, told)
        elif kind == "Notice":
            self.notice(told["text"])
        elif event.job in self._running:
            device, words = self._running[event.job]
            self._running[event.job] = device, words_of(told) or words
        self.update(*self._lines())

    def _place(self, job: str, told: dict[str, Any]) -> None:
        self._running[job] = told["device"], "starting"
        again = told["attempt"] > 1
        alone = ", alone" if told["alone"] else ""
        attempt = f", attempt {told['attempt']}" if again else ""
        self._line(f"{self._clock()}  {job}: on {told['device']}{alone}{attempt}")

    def _end(self, job: str, told: dict[str, Any]) -> None:
        self._running.pop(job, None)
        self._ended += told["status"] in ("done", "failed")
        reason = f" ({told['reason']})" if told["reason"] and told["status"] != "done" else ""
        self._line(f"{self._clock()}  {job}: {told['status']}{reason}")

    def _lines(self) -> list[str | Text]:
        waiting = self.jobs - self._ended - len(self._running)
        head = f"{self._clock()}  {self._ended} of {self.jobs} ended, {len(self._running)} run, {waiting} wait or come"
        rows = [f"  {job:<24} {device:<10} {words}" for job, (device, words) in self._running.items()]
        return [Text(head, style="bold"), *rows]

    def _line(self, line: str) -> None:
        self.console.print(line, soft_wrap=True)

    def _clock(self) -> str:
        return f"{time.monotonic() - self._began_s:7.1f} s"

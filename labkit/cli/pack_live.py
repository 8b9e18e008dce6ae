"""A queue as it runs: devices and their jobs on a terminal, a line an event elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.live import Live
from rich.text import Text

from labkit.cli.collocate_live import words_of
from labkit.cli.console import Console

if TYPE_CHECKING:
    from labkit.collocation.launching.round import JobEvent
    from labkit.collocation.packing.queued_job import QueuedJob


@dataclass
class _Running:
    """A job that has a place."""

    device: str
    words: str = "starting"


class QueueDisplay:
    """Shows who runs where, how many wait, and each end."""

    def __init__(self, console: Console, queue: Sequence[QueuedJob], policy: str):
        self.console, self.policy, self.jobs = console, policy, len(queue)
        self._running: dict[str, _Running] = {}
        self._ended = 0
        self._began_s = time.monotonic()
        self._noticed: set[str] = set()
        self._live = Live(console=console, refresh_per_second=4, transient=True)

    def __enter__(self) -> QueueDisplay:
        self.console.print(f"{self.policy}: {self.jobs} jobs", style="bold")
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *exception) -> None:
        if self.console.is_terminal:
            self._live.stop()

    def show(self, event: JobEvent) -> None:
        """Take an event of `run_queue`."""
        kind, told = event.event["kind"], event.event
        if kind == "Placed":
            self._place(event.job, told)
        elif kind == "Over":
            self._end(event.job, told)
        elif kind == "Notice":
            self._notice(told["text"])
        elif event.job in self._running:
            self._running[event.job].words = words_of(told) or self._running[event.job].words
        if self.console.is_terminal:
            self._live.update(Group(*self._lines()))

    def _place(self, job: str, told: dict[str, Any]) -> None:
        self._running[job] = _Running(told["device"])
        again = told["attempt"] > 1
        alone = ", alone" if told["alone"] else ""
        attempt = f", attempt {told['attempt']}" if again else ""
        self._line(f"{self._clock()}  {job}: on {told['device']}{alone}{attempt}")

    def _end(self, job: str, told: dict[str, Any]) -> None:
        self._running.pop(job, None)
        self._ended += told["status"] in ("done", "failed")
        reason = f" ({told['reason']})" if told["reason"] and told["status"] != "done" else ""
        self._line(f"{self._clock()}  {job}: {told['status']}{reason}")

    def _notice(self, text: str) -> None:
        """What a job wants known; all of them may say the same."""
        if text not in self._noticed:
            self._noticed.add(text)
            self.console.print(text, style="dim", markup=False, soft_wrap=True)

    def _lines(self) -> list[Text]:
        waiting = self.jobs - self._ended - len(self._running)
        head = f"{self._clock()}  {self._ended} of {self.jobs} ended, {len(self._running)} run, {waiting} wait or come"
        rows = [f"  {job:<24} {each.device:<10} {each.words}" for job, each in self._running.items()]
        return [Text(head, style="bold"), *(Text(row, no_wrap=True, overflow="ellipsis") for row in rows)]

    def _line(self, line: str) -> None:
        self.console.print(line, markup=False, soft_wrap=True)

    def _clock(self) -> str:
        return f"{time.monotonic() - self._began_s:7.1f} s"

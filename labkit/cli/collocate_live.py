"""A group as it runs: a row a job on a terminal, a line an event elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.text import Text

from labkit.cli.console import Console
from labkit.cli.live import LiveDisplay
from labkit.collocation.launching.plan_run import RoundBegins, RoundEnded
from labkit.collocation.launching.round import JobEvent
from labkit.tracking.crossings import Point
from labkit.tracking.events import Progress
from labkit.tracking.progress_line import progress_text

if TYPE_CHECKING:
    from labkit.collocation.plan.csv_plan import CsvPlan
    from labkit.collocation.plan.plan import Plan

RADT_STATUS = {"done": "FINISHED", "failed": "FAILED", "stopped": "KILLED"}
"""MLflow's words, which radT writes"""
SECONDS_A_LINE = 1.0
"""Evaluations that come faster are not all printed: a log keeps every line"""


class GroupDisplay(LiveDisplay):
    """Shows the rounds of a plan, and keeps what became of a CSV's rows."""

    def __init__(self, console: Console, plan: Plan, csv: CsvPlan | None = None):
        super().__init__(console)
        self.plan, self.csv = plan, csv
        self._head = ""
        self._does: dict[str, str] = {}
        """What each job of the round does"""
        self._metrics: dict[str, str | None] = {}
        self._told_at_s: dict[str, float] = {}

    def show(self, event: RoundBegins | JobEvent | RoundEnded) -> None:
        """Take an event of `run_plan`."""
        if isinstance(event, RoundBegins):
            repeat = f", repeat {event.record.repeat + 1} of {self.plan.repeats}" if self.plan.repeats > 1 else ""
            self._head = f"round {event.number} of {event.of}: {event.record.mode}{repeat}"
            self._does = {outcome.job: "starting" for outcome in event.record.jobs}
            self._told_at_s = {}
            self.line(self._head)
        elif isinstance(event, RoundEnded):
            self._end(event)
        elif event.job in self._does:
            self._take(event.job, event.event)
        self.update(Text(self._head, style="bold"), *(f"  {job:<20} {does}" for job, does in self._does.items()))

    def _take(self, job: str, event: dict[str, Any]) -> None:
        """Update from an event; a line where it is worth one in a log."""
        kind = event["kind"]
        if kind == "Notice":
            self.notice(event["text"])
        elif kind == "Started":
            self._metrics[job] = event["config"]["train"].get("target_metric")
        elif kind == "Over":
            reason = f" ({event['reason']})" if event["reason"] else ""
            self._does[job] = event["status"].replace("_", " ")
            self.line(f"  {job}: {self._does[job]}{reason}")
        self._does[job] = words_of(event, self._metrics.get(job)) or self._does[job]
        if kind == "Progress" and event["evaluated"]:
            at_s = event["point"]["wall_s"]
            if at_s >= self._told_at_s.get(job, -SECONDS_A_LINE) + SECONDS_A_LINE:
                self._told_at_s[job] = at_s
                self.line(f"  {job}: {self._does[job]}")

    def _end(self, event: RoundEnded) -> None:
        record = event.record
        if self.console.is_terminal:
            took = {job.job: "" if job.wall_s is None else f" after {job.wall_s:.1f} s" for job in record.jobs}
            ends = ", ".join(f"{job.job} {job.status.replace('_', ' ')}{took[job.job]}" for job in record.jobs)
            self.console.print(f"{self._head}: {ends}", soft_wrap=True)
        rows = {} if self.csv is None else self.csv.rows.get(record.workload, {})
        for job in record.jobs:
            # a row is finished when its last repeat is
            if job.job in rows and (job.status != "done" or record.repeat == self.plan.repeats - 1):
                self.csv.record(record.workload, job.job, RADT_STATUS.get(job.status, "FAILED"), job.run or "")


def words_of(event: dict[str, Any], metric: str | None = None) -> str | None:
    """What a job does, from what its process told; None where that changes nothing.

    Args:
        event: as its process told it.
        metric: of its target, shown before others.
    """
    kind = event["kind"]
    if kind == "Preparing":
        return f"preparing data {event['fraction']:.0%}  {event['text']}"
    if kind == "Progress":
        told = {name: value for name, value in event.items() if name != "kind"}
        return progress_text(Progress(**told | {"point": Point(**event["point"])}), metric)
    return {"Started": "building", "Ready": "ready, waits for the others"}.get(kind)

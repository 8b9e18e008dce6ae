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
        self._head, self._rows = "", {}

    def show(self, event: RoundBegins | JobEvent | RoundEnded) -> None:
        """Take an event of `run_plan`."""
        if isinstance(event, RoundBegins):
            self._begin(event)
        elif isinstance(event, RoundEnded):
            self._end(event)
        elif event.job in self._rows and (line := self._rows[event.job].take(event.event)):
            self.line(f"  {line}")
        elif event.event["kind"] == "Notice":
            self.notice(event.event["text"])
        self.update(Text(self._head, style="bold"), *map(str, self._rows.values()))

    def _begin(self, event: RoundBegins) -> None:
        record = event.record
        repeat = f", repeat {record.repeat + 1} of {self.plan.repeats}" if self.plan.repeats > 1 else ""
        self._head = f"round {event.number} of {event.of}: {record.mode}{repeat}"
        self._rows = {outcome.job: _Row(outcome.job, outcome.label) for outcome in record.jobs}
        self.line(self._head)

    def _end(self, event: RoundEnded) -> None:
        record = event.record
        if self.console.is_terminal:
            ends = ", ".join(f"{each.job} {_end_text(each.status, each.wall_s)}" for each in record.jobs)
            self.console.print(f"{self._head}: {ends}", soft_wrap=True)
        rows = {} if self.csv is None else self.csv.rows.get(record.workload, {})
        for each in record.jobs:
            # a row is finished when its last repeat is
            if each.job in rows and (each.status != "done" or record.repeat == self.plan.repeats - 1):
                self.csv.record(record.workload, each.job, RADT_STATUS.get(each.status, "FAILED"), each.run or "")


class _Row:
    """What is known of one job of the round."""

    def __init__(self, job: str, label: str):
        self.job, self.label, self.status = job, label, "starting"
        self._metric: str | None = None
        self._told_at_s = -SECONDS_A_LINE

    def take(self, event: dict[str, Any]) -> str | None:
        """Update from an event; a line where it is worth one in a log."""
        kind = event["kind"]
        if kind == "Started":
            self._metric = event["config"]["train"].get("target_metric")
        self.status = words_of(event, self._metric) or self.status
        if kind == "Progress":
            if event["evaluated"] and event["point"]["wall_s"] >= self._told_at_s + SECONDS_A_LINE:
                self._told_at_s = event["point"]["wall_s"]
                return f"{self.job}: {self.status}"
        elif kind == "Over":
            self.status = event["status"].replace("_", " ")
            reason = f" ({event['reason']})" if event["reason"] else ""
            return f"{self.job}: {self.status}{reason}"
        return None

    def __str__(self) -> str:
        return f"  {self.job:<20} {self.status}"


def words_of(event: dict[str, Any], metric: str | None = None) -> str | None:
    """What a job does, from what it told; None where that changes nothing.

    Args:
        event: as its process told it.
        metric: of its target, shown before others.
    """
    kind = event["kind"]
    if kind == "Preparing":
        return f"preparing data {event['fraction']:.0%}  {event['text']}"
    if kind == "Started":
        return "building"
    if kind == "Ready":
        return "ready, waits for the others"
    if kind != "Progress":
        return None
    told = {name: value for name, value in event.items() if name != "kind"}
    return progress_text(Progress(**told | {"point": Point(**event["point"])}), metric)


def _end_text(status: str, wall_s: float | None) -> str:
    took = "" if wall_s is None else f" after {wall_s:.1f} s"
    return f"{status.replace('_', ' ')}{took}"

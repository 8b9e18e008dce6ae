"""A group as it runs: a row a job on a terminal, a line a round elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.text import Text

from labkit.cli.console import Console
from labkit.cli.live import LiveDisplay
from labkit.collocation.launching.job import JobEvent
from labkit.collocation.launching.plan_run import RoundEvent
from labkit.tracking.crossings import Point
from labkit.tracking.events import Progress
from labkit.tracking.progress_line import progress_text

if TYPE_CHECKING:
    from labkit.collocation.plan.csv_plan import CsvPlan
    from labkit.collocation.plan.plan import Plan

RADT_STATUS = {"done": "FINISHED", "failed": "FAILED", "stopped": "KILLED"}
"""MLflow's words, which radT writes"""


class GroupDisplay(LiveDisplay):
    """Shows the rounds of a plan, and keeps what became of a CSV's rows."""

    def __init__(self, console: Console, plan: Plan, csv: CsvPlan | None = None):
        super().__init__(console)
        self.plan, self.csv = plan, csv
        self._head = ""
        self._does: dict[str, str] = {}
        """What each job of the round does"""

    def show(self, event: JobEvent | RoundEvent) -> None:
        """Take an event of `run_plan`."""
        if isinstance(event, RoundEvent):
            self._head = event.words
            self._does = {outcome.job: "starting" for outcome in event.record.jobs}
            if event.record.ended_at is None:
                self.line(self._head)
            else:
                self.console.print(self._head, soft_wrap=True)
                self._keep_statuses(event)
        elif event.job in self._does:
            if event.event["kind"] == "Notice":
                self.notice(event.event["text"])
            self._does[event.job] = words_of(event.event) or self._does[event.job]
        self.update(Text(self._head, style="bold"), *(f"  {job:<20} {does}" for job, does in self._does.items()))

    def _keep_statuses(self, event: RoundEvent) -> None:
        rows = {} if self.csv is None else self.csv.rows.get(event.record.workload, {})
        for job in event.record.jobs:
            # a row is finished when its last repeat is
            if job.job in rows and (job.status != "done" or event.record.repeat == self.plan.repeats - 1):
                self.csv.record(event.record.workload, job.job, RADT_STATUS.get(job.status, "FAILED"), job.run or "")


def words_of(event: dict[str, Any]) -> str | None:
    """What a job does, from what its process told; None where that changes nothing."""
    kind = event["kind"]
    if kind == "Preparing":
        return f"preparing data {event['fraction']:.0%}  {event['text']}"
    if kind == "Progress":
        told = {name: value for name, value in event.items() if name != "kind"}
        return progress_text(Progress(**told | {"point": Point(**event["point"])}), None)
    if kind == "Over":
        return event["status"].replace("_", " ")
    return {"Started": "building", "Ready": "ready, waits for the others"}.get(kind)

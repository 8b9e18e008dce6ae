"""One round: its jobs built, let go together, followed to their ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any

from labkit.errors import UserError
from labkit.process import JobProcess, SupervisedJobs, SupervisorDied, how_ended
from labkit.runs import STOP_POLL_S, timestamp
from labkit.sharing.launching.job import JobEvent, OnJobEvent, told_end
from labkit.sharing.launching.jobs_record import ENDED, JobOutcome, RoundRecord
from labkit.tracking import StopRequest


@dataclass
class Round:
    """Runs the jobs of one round; the record is kept up to date, and `save` is called whenever it changed."""

    record: RoundRecord
    processes: list[JobProcess]
    supervised: SupervisedJobs
    _: KW_ONLY
    timeout_s: float
    on_event: OnJobEvent
    stop: StopRequest
    save: Callable[[], None]
    mps_gpus: Sequence[str] | None = None
    """Of the MPS daemon whose clients they are"""

    def __post_init__(self):
        self.outcomes = {outcome.job: outcome for outcome in self.record.jobs}
        self._running = set(self.outcomes)
        """Jobs whose process has not ended"""
        self._built: set[str] = set()
        self._went_at: float | None = None
        self._why_ending: tuple[str, str] | None = None
        """Status and reason of the jobs that are told to end"""

    def run(self) -> None:
        """Run to the end of all jobs; afterwards no process of theirs is left."""
        self.record.status = "running"
        for outcome in self.outcomes.values():
            outcome.status = "running"
        self.save()
        try:
            clients = {} if self.mps_gpus is None else self.supervised.start_mps(self.mps_gpus)
            for process in self.processes:
                self.supervised.start(replace(process, environment=clients | process.environment))
            self._follow()
            self.record.left = self.supervised.sweep()
        except (SupervisorDied, UserError) as error:  # the latter where MPS does not start
            self._end_all("failed", str(error))
        except BaseException:
            self._end_all("stopped", "the launcher was interrupted")
            raise
        finally:
            statuses = {outcome.status for outcome in self.outcomes.values()}
            self.record.status = (
                "done" if statuses == {"done"} else "stopped" if self.stop or "stopped" in statuses else "failed"
            )
            self.record.ended_at = timestamp()
            self.save()

    def _follow(self) -> None:
        until = time.monotonic() + self.timeout_s
        while self._running:
            event = self.supervised.next_event(STOP_POLL_S)
            if event is not None:
                self._hear(event)
            if self.stop:
                self._tell_to_end("stopped", f"stopped by {self.stop.reason}")
            elif time.monotonic() > until:
                self._tell_to_end("timed_out", f"not done {self.timeout_s:g} s after it was started")
            elif self._went_at is None:
                self._lift_barrier()

    def _lift_barrier(self) -> None:
        """Let all go when all are built; where one cannot be, none is let go: they were to run together."""
        failed = [outcome for outcome in self.outcomes.values() if outcome.status in ENDED]
        if failed:
            why = " without a step" if failed[0].status == "done" else ""
            self._tell_to_end("stopped", f"not started, because {failed[0].job} ended before the start{why}")
        elif len(self._built) == len(self.outcomes):
            self.supervised.go(*self.outcomes)
            self._went_at, self.record.go_at = time.monotonic(), timestamp()
            self.save()
            self.on_event(JobEvent("", {"kind": "Go"}))

    def _tell_to_end(self, status: str, reason: str) -> None:
        if self._why_ending is None:
            self._why_ending = (status, reason)
            for name in self._running:
                self.supervised.end(name)

    def _hear(self, event: dict[str, Any]) -> None:
        if event["kind"] not in ("told", "ended"):
            return
        outcome = self.outcomes[event["job"]]
        told = event.get("event", event)
        if told["kind"] == "ended":
            self._running.discard(outcome.job)
            if outcome.status not in ENDED:  # it had no word to say
                self._finish(outcome, "stopped" if event["asked"] else "failed", how_ended(event))
            outcome.reason = "; ".join(filter(None, [outcome.reason, *event["still"]]))
            told = {"kind": "Over", "status": outcome.status, "reason": outcome.reason}
        elif told["kind"] == "Started":
            outcome.run = told["run"]
        elif told["kind"] == "Ready":
            self._built.add(outcome.job)
        elif told["kind"] in ("Ended", "Failed"):
            status, reason, answer = told_end(told)
            if outcome.run is None and "folder" in answer:
                outcome.run = Path(answer["folder"]).name
            self._finish(outcome, status, reason, answer.get("result", {}).get("wall_s"))
        if told["kind"] in ("Started", "Ended", "Failed", "Over"):
            self.save()
        self.on_event(JobEvent(outcome.job, told))

    def _finish(self, outcome: JobOutcome, status: str, reason: str, wall_s: float | None = None) -> None:
        if status == "stopped" and self._why_ending is not None:
            status, reason = self._why_ending
        if wall_s is None and self._went_at is not None:
            wall_s = time.monotonic() - self._went_at
        outcome.status, outcome.reason, outcome.wall_s = status, reason, wall_s

    def _end_all(self, status: str, reason: str) -> None:
        for outcome in self.outcomes.values():
            if outcome.status not in ENDED:
                outcome.status, outcome.reason = status, reason

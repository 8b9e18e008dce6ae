"""One run of a queue: between the scheduler, which knows no processes, and the supervisor, which knows no queue."""

from __future__ import annotations

import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from labkit.collocation.launching.round import JobEvent, OnJobEvent
from labkit.collocation.launching.worker_process import worker_process
from labkit.collocation.packing.live_device import LiveDevice
from labkit.collocation.packing.monitor import Monitor
from labkit.collocation.packing.queue_record import QueueRecord
from labkit.collocation.packing.queued_job import Attempt
from labkit.collocation.packing.scheduler import Scheduler, Start
from labkit.collocation.plan.job_names import told_of_mix
from labkit.process.supervised import SupervisedJobs, SupervisorDied, how_ended
from labkit.runs.atomic import temporary_of
from labkit.runs.record import timestamp
from labkit.tracking.stop import StopRequest

LOOK_EVERY_S = 0.25
"""So often arrivals and a request to stop are looked at."""
MONITOR_EVERY_S = 1.0
FULL_SHARE = 0.05
"""A device with less of its memory free than this was full when one of its processes was killed: our choice."""
READINGS = 5
"""So many of the latest readings count for that: what a killed process held is free at once."""

Monitors = Callable[[Sequence[LiveDevice]], Monitor]


class QueueRun:
    """Runs what a scheduler holds; the record is kept up to date."""

    def __init__(
        self,
        folder: Path,
        record: QueueRecord,
        scheduler: Scheduler,
        devices: Sequence[LiveDevice],
        on_event: OnJobEvent,
        stop: StopRequest,
    ):
        self.folder, self.record, self.scheduler, self.devices = folder, record, scheduler, devices
        self.on_event, self.stop = on_event, stop
        self.tracked = {job.name: job for job in record.jobs}
        self._queued = {name: job.queued for name, job in scheduler.jobs.items()}
        self._alone = {name for name in self._queued if self.tracked[name].ran_out_of_memory}
        """Ran out of memory before this packer began"""
        self._coming = deque(sorted(self._queued.values(), key=lambda queued: queued.arrives_s))
        self._fates: dict[str, tuple[str, str]] = {}
        """Ending and reason of jobs that told theirs, and whose process has not ended yet"""
        self._running: set[str] = set()
        self._free: list[deque[int]] = [deque(maxlen=READINGS) for _ in devices]
        self._opened_s = time.monotonic() - record.elapsed_s
        self._resumed = record.elapsed_s > 0
        words = f"{record.policy} queue of {len(record.jobs)} jobs"
        self._told = told_of_mix(record.mode, [job.queued.job for job in record.jobs], words)
        self._looked_s = -MONITOR_EVERY_S

    def run(self, monitors: Monitors) -> None:
        """Run to the end of all jobs; afterwards no process of theirs is left."""
        self._save()
        try:
            with SupervisedJobs() as self.supervised, monitors(self.devices) as self.monitor:
                self.supervised.remove_at_end(temporary_of(self.record.file(self.folder)))
                try:
                    self._follow()
                finally:
                    self.record.energy_j, self.record.energy_note = self._energy()
        except SupervisorDied as error:
            self._end_all(str(error))
        except BaseException:
            self._end_all("the packer was interrupted")
            raise
        finally:
            statuses = {job.status for job in self.record.jobs}
            unfinished = statuses - {"done", "failed"}
            self.record.status = "stopped" if unfinished else "failed" if "failed" in statuses else "done"
            self.record.ended_at = timestamp()
            self._save()

    def _follow(self) -> None:
        while not self.scheduler.finished:
            if self.stop:
                break
            self._let_arrive()
            self._look()
            for start in self.scheduler.starts(self._now_s()):
                self._start(start)
            self._hear_all()
        for name in self._running:
            self.supervised.end(name)
        while self._running:
            self._hear_all()

    def _let_arrive(self) -> None:
        while self._coming and self._coming[0].arrives_s <= self._now_s():
            name = self._coming.popleft().name
            self.scheduler.arrived(name, self._now_s())
            self.tracked[name].status = "queued"
            self.tracked[name].queued_s = self._now_s()

    def _look(self) -> None:
        if self._now_s() - self._looked_s < MONITOR_EVERY_S:
            return
        self._looked_s = self._now_s()
        for position, look in enumerate(self.monitor.look()):
            self.scheduler.observed(position, free_bytes=look.free_bytes, utilisation=look.utilisation)
            if look.free_bytes is not None:
                self._free[position].append(look.free_bytes)

    def _start(self, start: Start) -> None:
        queued, live, now_s = self._queued[start.name], self.devices[start.device], self._now_s()
        entry = self.tracked[start.name]
        alone = start.alone or start.name in self._alone
        number = len(entry.attempts) + 1
        entry.attempts.append(Attempt(number, start.device, alone, entry.queued_s or 0.0, now_s))
        entry.status = "running"
        self._free[start.device].clear()
        log = f"logs/{queued.name}-{number}.log"
        process = worker_process(queued.job, live.share, self.folder, log, self._told, self._cap(start, live))
        self.supervised.start(process)
        self._running.add(start.name)
        self._save()
        placed = {"kind": "Placed", "device": live.packing.name, "attempt": number, "alone": alone}
        self.on_event(JobEvent(start.name, placed))

    def _cap(self, start: Start, live: LiveDevice) -> int | None:
        """In a partition, what is left of its memory as believed: a job that takes more must not take its neighbour's.

        One that is there by itself may have all.
        """
        if live.share.memory_bytes is None:
            return None
        state = self.scheduler.states()[start.device]
        beside = sum(profile.memory_estimate_bytes for profile in state.profiles)
        beside -= self._queued[start.name].profile.memory_estimate_bytes
        return live.packing.memory_bytes - beside

    def _hear_all(self) -> None:
        event = self.supervised.next_event(LOOK_EVERY_S)
        while event is not None:
            self._hear(event)
            event = self.supervised.next_event(0)

    def _hear(self, event: dict[str, Any]) -> None:
        if event["kind"] == "ended":
            self._process_ended(event)
        if event["kind"] != "told":
            return
        told, name = event["event"], event["job"]
        if told["kind"] == "Started":
            self.record.attempt_of(name).run = told["run"]
            self._save()
        elif told["kind"] == "Ready":
            self.supervised.go(name)
        elif told["kind"] in ("Ended", "Failed"):
            self._fates[name] = _fate(told)
        self.on_event(JobEvent(name, told))

    def _process_ended(self, event: dict[str, Any]) -> None:
        """A job's place is free when its process is gone, not when it says that it is done."""
        name, attempt = event["job"], self.record.attempt_of(event["job"])
        ending, reason = self._fates.pop(name, (None, ""))
        if ending is None:
            ending, reason = self._died(attempt, event)
        if ending == "failed" and event["asked"]:
            ending, reason = "stopped", f"stopped by {self.stop.reason}"
        if ending == "out of memory" and name in self._alone:
            ending, reason = "failed", f"it ran out of memory again, alone: {reason}"
        reason = "; ".join([reason, *event["still"]])
        self._running.discard(name)
        attempt.ends_s, attempt.ending, attempt.reason = self._now_s(), ending, reason
        if ending == "stopped":
            self.tracked[name].status = "stopped"
        else:
            # a job that is done got all of its work done, however long that took
            attempt.work_s = self._queued[name].profile.duration_s if ending == "done" else None
            self.scheduler.ended(name, attempt.ends_s, ending, work_s=attempt.work_s)
            self.tracked[name].status = self.scheduler.jobs[name].status
            self.tracked[name].queued_s = attempt.ends_s
        self._save()
        self.on_event(JobEvent(name, {"kind": "Over", "status": ending, "reason": reason}))

    def _died(self, attempt: Attempt, event: dict[str, Any]) -> tuple[str, str]:
        """Ending and reason of a process that had no word to say."""
        by = how_ended(event)
        lowest = min(self._free[attempt.device], default=None)
        if event["status"] == -signal.SIGKILL and lowest is not None:
            share = lowest / self.devices[attempt.device].packing.memory_bytes
            if share < FULL_SHARE:  # Linux kills who asks for memory that there is not
                return "out of memory", f"{by} while {share:.0%} of the device's memory was free"
        return "failed", by

    def _end_all(self, reason: str) -> None:
        for name in self._running:
            attempt = self.record.attempt_of(name)
            attempt.ends_s, attempt.ending, attempt.reason = self._now_s(), "stopped", reason
            self.tracked[name].status = "stopped"

    def _energy(self) -> tuple[float | None, str]:
        if self._resumed:
            return None, "the queue was cut short and resumed, and nobody counted what came before"
        return self.monitor.energy_j()

    def _now_s(self) -> float:
        return time.monotonic() - self._opened_s

    def _save(self) -> None:
        self.record.elapsed_s = self._now_s()
        self.record.save(self.folder)


def _fate(told: dict[str, Any]) -> tuple[str, str]:
    """Ending and reason of a job by its last word."""
    if told["kind"] == "Failed":
        ending = "out of memory" if told["status"] == "out_of_memory" else "failed"
        return ending, told["reason"]
    reason = told.get("result", {}).get("reason", "")
    return ("done" if told["status"] == "done" else "failed"), reason

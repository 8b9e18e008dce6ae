"""Runs a queue on the devices there are: each job starts when the scheduler says so, under one supervisor for all."""

from __future__ import annotations

import math
import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from labkit.collocation.launching.jobs_record import JobsRecord
from labkit.collocation.launching.round import JobEvent, OnJobEvent
from labkit.collocation.launching.worker_process import worker_process
from labkit.collocation.packing.live_device import EVERY_S, LiveDevice, Monitor
from labkit.collocation.packing.policy import Admission, PackingDevice, Policy
from labkit.collocation.packing.queue import Attempt, JobProfile, QueuedJob, TrackedJob
from labkit.collocation.packing.schedule import Schedule, schedule_of
from labkit.collocation.packing.scheduler import Scheduler
from labkit.collocation.plan.planned_job import PlannedJob, told_of_mix
from labkit.json_data import check_shape
from labkit.process.supervisor import SupervisedJobs, SupervisorDied, how_ended
from labkit.runs.atomic import temporary_of
from labkit.runs.record import timestamp
from labkit.tracking.stop import StopRequest

LOOK_EVERY_S = 0.25
"""So often arrivals and a request to stop are looked at."""
FULL_SHARE = 0.05
"""A device with less of its memory free than this was full when one of its processes was killed: our choice."""
READINGS = 3
"""So many of the latest readings count for that: what a killed process held is free at once."""


@dataclass(kw_only=True)
class QueueRecord(JobsRecord):
    """The content of `queue.json`: a queue, its devices, and each start of each job."""

    KIND: ClassVar[str] = "queue"

    policy: str
    mode: str
    """How jobs share a device: cpu-shared, or naive on GPUs"""
    devices: list[PackingDevice]
    jobs: list[TrackedJob]
    """In the order of the queue; the scheduler's own while it runs"""
    energy_j: float | None = None
    energy_note: str = ""

    @property
    def schedule(self) -> Schedule:
        """As measured."""
        return schedule_of(self.policy, "measured", self.jobs, self.devices, self.energy_note, self.energy_j)


def read_queue_record(folder: Path | str) -> QueueRecord:
    """Read a queue's record; one whose packer died shows as "interrupted".

    Raises:
        UserError: there is none, or it is damaged, or another version of labkit wrote it.
    """
    return QueueRecord.read(folder, _parts)


def _parts(content: dict[str, Any]) -> dict[str, Any]:
    check_shape(content, QueueRecord)
    jobs = []
    for values in content["jobs"]:
        queued, attempts = values["queued"], [Attempt(**attempt) for attempt in values["attempts"]]
        profile = queued["profile"] and JobProfile(**queued["profile"])
        job = QueuedJob(PlannedJob.from_dict(queued["job"]), queued["arrives_s"], profile)
        jobs.append(TrackedJob(**values | {"queued": job, "attempts": attempts}))
    return {"devices": [PackingDevice(**device) for device in content["devices"]], "jobs": jobs}


def run_queue(
    queue: Sequence[QueuedJob],
    devices: Sequence[LiveDevice],
    policy: Policy,
    *,
    runs_dir: Path,
    on_event: OnJobEvent,
    stop: StopRequest,
    name: str = "queue",
    admission: Admission | None = None,
    monitor: Callable[[Sequence[LiveDevice]], Monitor] = Monitor,
) -> Path:
    """Run a queue, which has been checked, to its end; afterwards no process of it is left, however it ended.

    Args:
        queue: jobs with profiles.
        devices: where they run, from `live_devices`.
        policy: who goes where.
        runs_dir: the folder that the queue's folder is made in.
        on_event: called with what happens. An event is what a job told, or its kind is Placed (device, attempt, alone)
            or Over (status, reason).
        stop: ends all politely.
        name: a part of the folder's name.
        admission: preconditions of the scheduler.
        monitor: makes what looks at the devices.

    Returns:
        The queue's folder: queue.json, the jobs' run folders, and their logs.

    Raises:
        UserError: a folder cannot be made.
    """
    scheduler = Scheduler(queue, [live.packing for live in devices], policy, admission)
    folder = QueueRecord.new_folder(runs_dir, name)
    record = QueueRecord(
        id=folder.name,
        policy=policy.name,
        mode="cpu-shared" if devices[0].on_cpu else "naive",
        devices=[live.packing for live in devices],
        jobs=list(scheduler.jobs.values()),
    )
    run = _QueueRun(folder, record, scheduler, devices, on_event, stop)
    record.save(folder)
    try:
        with SupervisedJobs() as run.supervised, monitor(devices) as run.monitor:
            run.supervised.remove_at_end(temporary_of(record.file(folder)))
            try:
                run.follow()
            finally:
                record.energy_j, record.energy_note = run.monitor.energy_j()
    except SupervisorDied as error:
        run.end_all(str(error))
    except BaseException:
        run.end_all("the packer was interrupted")
        raise
    finally:
        statuses = {job.status for job in record.jobs}
        record.status = "stopped" if statuses - {"done", "failed"} else "failed" if "failed" in statuses else "done"
        record.ended_at = timestamp()
        record.save(folder)
    return folder


@dataclass
class _QueueRun:
    """Between the scheduler, which knows no processes, and the supervisor, which knows no queue."""

    folder: Path
    record: QueueRecord
    scheduler: Scheduler
    devices: Sequence[LiveDevice]
    on_event: OnJobEvent
    stop: StopRequest
    supervised: SupervisedJobs | None = None
    monitor: Monitor | None = None

    def __post_init__(self):
        self._fates: dict[str, tuple[str, str]] = {}
        """Ending and reason of jobs that told theirs, and whose process has not ended yet"""
        self._free = [deque([math.inf], maxlen=READINGS) for _ in self.devices]
        """What each device had free, as last seen"""
        self._opened_s, self._looked_s = time.monotonic(), -EVERY_S
        jobs = [job.queued.job for job in self.record.jobs]
        self._told = told_of_mix(self.record.mode, jobs, f"{self.record.policy} queue of {len(jobs)} jobs")

    def follow(self) -> None:
        while not self.scheduler.finished and not self.stop:
            self.scheduler.let_arrive(self._now_s())
            self._look()
            for job in self.scheduler.starts(self._now_s()):
                self._start(job)
            self._hear_all()
        for job in self._running():
            self.supervised.end(job.name)
        while self._running():
            self._hear_all()

    def end_all(self, reason: str) -> None:
        """Note that all processes are gone."""
        for job in self._running():
            self.scheduler.ended(job.name, self._now_s(), "stopped", reason)

    def _running(self) -> list[TrackedJob]:
        return [job for job in self.record.jobs if job.status == "running"]

    def _now_s(self) -> float:
        return time.monotonic() - self._opened_s

    def _look(self) -> None:
        if self._now_s() - self._looked_s >= EVERY_S:
            self._looked_s = self._now_s()
            for position, seen in enumerate(self.monitor.look()):
                self.scheduler.observed(position, **seen)
                self._free[position].append(seen.get("monitored_free_bytes", math.inf))

    def _start(self, job: TrackedJob) -> None:
        attempt = job.attempts[-1]
        live, log = self.devices[attempt.device], f"logs/{job.name}-{attempt.number}.log"
        self.supervised.start(worker_process(job.queued.job, live.share, self.folder, log, self._told))
        self.record.save(self.folder)
        placed = {"kind": "Placed", "device": live.packing.name, "attempt": attempt.number, "alone": attempt.alone}
        self.on_event(JobEvent(job.name, placed))

    def _hear_all(self) -> None:
        event = self.supervised.next_event(LOOK_EVERY_S)
        while event is not None:
            if event["kind"] == "ended":
                self._process_ended(event)
            elif event["kind"] == "told":
                self._take(event["job"], event["event"])
            event = self.supervised.next_event(0)

    def _take(self, name: str, told: dict[str, Any]) -> None:
        """What a job told."""
        if told["kind"] == "Started":
            self.scheduler.jobs[name].attempts[-1].run = told["run"]
            self.record.save(self.folder)
        elif told["kind"] == "Ready":
            self.supervised.go(name)
        elif told["kind"] == "Failed":
            self._fates[name] = "out of memory" if told["status"] == "out_of_memory" else "failed", told["reason"]
        elif told["kind"] == "Ended":
            reason = told.get("result", {}).get("reason", "")
            self._fates[name] = "done" if told["status"] == "done" else "failed", reason
        self.on_event(JobEvent(name, told))

    def _process_ended(self, event: dict[str, Any]) -> None:
        """A job's place is free when its process is gone, not when it says that it is done."""
        name = event["job"]
        ending, reason = self._fates.pop(name, None) or self._died(self.scheduler.jobs[name], event)
        if ending == "failed" and event["asked"]:
            ending, reason = "stopped", f"stopped by {self.stop.reason}"
        reason = "; ".join([reason, *event["still"]])
        self.scheduler.ended(name, self._now_s(), ending, reason)
        self.record.save(self.folder)
        self.on_event(JobEvent(name, {"kind": "Over", "status": ending, "reason": reason}))

    def _died(self, job: TrackedJob, event: dict[str, Any]) -> tuple[str, str]:
        """Ending and reason of a process that had no word to say."""
        by, device = how_ended(event), job.attempts[-1].device
        share = min(self._free[device]) / self.devices[device].packing.memory_bytes
        if event["status"] == -signal.SIGKILL and share < FULL_SHARE:
            return "out of memory", f"{by} while {share:.0%} of the device's memory was free"
        return "failed", by

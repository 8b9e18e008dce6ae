"""Runs a queue on the devices there are: each job starts when the scheduler says so, under one supervisor for all."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from labkit.process import SupervisedJobs, SupervisorDied, how_ended
from labkit.runs import STOP_POLL_S, temporary_of
from labkit.sharing.launching.job import JobEvent, OnJobEvent, told_end, worker_process
from labkit.sharing.launching.jobs_record import JobsRecord
from labkit.sharing.packing.live_device import EVERY_S, DeviceMonitor, LiveDevice
from labkit.sharing.packing.policy import Admission, PackingDevice, Policy, cpu_admission
from labkit.sharing.packing.queue import QueuedJob, TrackedJob
from labkit.sharing.packing.recorded_profiles import read_recorded, shared_slowdown
from labkit.sharing.packing.scheduler import Schedule, Scheduler, schedule_of
from labkit.sharing.plan.planned_job import told_of_mix
from labkit.tracking import StopRequest


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
) -> Path:
    """Run a queue, which has been checked, to its end; afterwards no process of it is left, however it ended.

    Args:
        queue: jobs with profiles.
        devices: where they run, from `live_devices`.
        policy: who goes where.
        runs_dir: the folder that the queue's folder is made in.
        on_event: called with what jobs tell, and with events Placed (device, attempt, alone) and Over (status, reason).
        stop: ends all politely.
        name: a part of the folder's name.
        admission: who may join whom; on a CPU None takes the recorded pairs, else the utilisations.

    Returns:
        The queue's folder: queue.json, the jobs' run folders, and their logs.
    """
    packing = [live.packing for live in devices]
    if admission is None:
        admission = cpu_admission(shared_slowdown(read_recorded())) if devices[0].on_cpu else Admission()
    scheduler = Scheduler(queue, packing, policy, admission)
    content = {"policy": policy.name, "devices": packing, "jobs": list(scheduler.jobs.values())}
    mode = "cpu-shared" if devices[0].on_cpu else "naive"
    folder, record = QueueRecord.new(runs_dir, name, mode=mode, **content)
    run = _LiveDevices(folder, record, devices, on_event, stop)
    with record.kept(folder):
        record.save(folder)
        try:
            with SupervisedJobs() as run.supervised, DeviceMonitor(devices) as run.monitor:
                run.supervised.remove_at_end(temporary_of(record.file(folder)))
                try:
                    scheduler.run(run, stop)
                    for job in run.running():
                        run.supervised.end(job.name)
                    while run.running():
                        for job_name, ending, reason in run.endings():
                            scheduler.ended(job_name, run.now_s, ending, reason)
                finally:
                    record.energy_j, record.energy_note = run.monitor.energy_j()
        except BaseException as error:
            for job in run.running():  # all processes are gone
                reason = str(error) if isinstance(error, SupervisorDied) else "the packer was interrupted"
                scheduler.ended(job.name, run.now_s, "stopped", reason)
            if not isinstance(error, SupervisorDied):
                raise
        statuses = {job.status for job in record.jobs}
        record.status = "stopped" if statuses - {"done", "failed"} else "failed" if "failed" in statuses else "done"
    return folder


@dataclass
class _LiveDevices:
    """The `Devices` that there are: between the scheduler, which knows no processes, and the supervisor."""

    folder: Path
    record: QueueRecord
    devices: Sequence[LiveDevice]
    on_event: OnJobEvent
    stop: StopRequest
    supervised: SupervisedJobs | None = None
    monitor: DeviceMonitor | None = None

    def __post_init__(self):
        self._outcomes: dict[str, tuple[str, str]] = {}
        """Ending and reason of jobs that told theirs, and whose process has not ended yet"""
        self._opened_s, self._looked_s = time.monotonic(), -EVERY_S
        jobs = [job.queued.job for job in self.record.jobs]
        self._told = told_of_mix(self.record.mode, jobs, f"{self.record.policy} queue of {len(jobs)} jobs")

    @property
    def now_s(self) -> float:
        return time.monotonic() - self._opened_s

    def running(self) -> list[TrackedJob]:
        return [job for job in self.record.jobs if job.status == "running"]

    def look(self) -> list[dict[str, float]]:
        if self.now_s - self._looked_s < EVERY_S:
            return []
        self._looked_s = self.now_s
        return self.monitor.look()

    def start(self, job: TrackedJob) -> None:
        attempt = job.attempts[-1]
        live, log = self.devices[attempt.device], f"logs/{job.name}-{attempt.number}.log"
        self.supervised.start(worker_process(job.queued.job, live.share, self.folder, log, self._told))
        self.record.save(self.folder)
        placed = {"kind": "Placed", "device": live.packing.name, "attempt": attempt.number, "alone": attempt.alone}
        self.on_event(JobEvent(job.name, placed))

    def endings(self, until_s: float | None = None) -> Iterator[tuple[str, str, str]]:
        event = self.supervised.next_event(STOP_POLL_S)
        while event is not None:
            if event["kind"] == "told":
                self._hear(event["job"], event["event"])
            elif event["kind"] == "ended":  # a job's place is free when its process is gone, not when it says that
                name, (ending, reason) = event["job"], self._outcome(event)
                yield name, ending, reason
                self.record.save(self.folder)
                self.on_event(JobEvent(name, {"kind": "Over", "status": ending, "reason": reason}))
            event = self.supervised.next_event(0)

    def _hear(self, name: str, told: dict[str, Any]) -> None:
        if told["kind"] == "Started":
            (job,) = [each for each in self.record.jobs if each.name == name]
            job.attempts[-1].run = told["run"]
            self.record.save(self.folder)
        elif told["kind"] == "Ready":
            self.supervised.go(name)
        elif told["kind"] in ("Ended", "Failed"):
            status, reason, _ = told_end(told)
            endings = {"done": "done", "out_of_memory": "out of memory"}
            self._outcomes[name] = endings.get(status, "failed"), reason
        self.on_event(JobEvent(name, told))

    def _outcome(self, event: dict[str, Any]) -> tuple[str, str]:
        """Ending and reason of a job whose process has ended; SIGKILL is how a system ends one that fills memory."""
        unsaid = "out of memory" if event["status"] == -signal.SIGKILL else "failed"
        ending, reason = self._outcomes.pop(event["job"], (unsaid, how_ended(event)))
        if ending != "done" and event["asked"]:
            ending, reason = "stopped", f"stopped by {self.stop.reason}"
        return ending, "; ".join([reason, *event["still"]])

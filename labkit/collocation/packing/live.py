"""Runs a queue on the devices there are: each job starts when the scheduler says so, under one supervisor for all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from labkit.collocation.launching.round import OnJobEvent
from labkit.collocation.packing.admission import Admission
from labkit.collocation.packing.device_state import PackingDevice
from labkit.collocation.packing.live_device import LiveDevice
from labkit.collocation.packing.monitor import Monitor
from labkit.collocation.packing.policy import Policy, get_policy
from labkit.collocation.packing.queue_record import QueueRecord, new_queue, read_queue_record
from labkit.collocation.packing.queue_run import Monitors, QueueRun
from labkit.collocation.packing.queued_job import QueuedJob
from labkit.collocation.packing.scheduler import Scheduler
from labkit.errors import UserError
from labkit.tracking.stop import StopRequest


def run_queue(
    queue: Sequence[QueuedJob],
    devices: Sequence[LiveDevice],
    policy: Policy,
    *,
    mode: str,
    runs_dir: Path,
    on_event: OnJobEvent,
    stop: StopRequest,
    name: str = "queue",
    admission: Admission | None = None,
    monitors: Monitors = Monitor,
) -> Path:
    """Run a queue, which has been checked, to its end; afterwards no process of it is left, however it ended.

    Args:
        queue: jobs with profiles.
        devices: where they run, from `live_devices`.
        policy: who goes where.
        mode: how jobs share a device, for the record.
        runs_dir: the folder that the queue's folder is made in.
        on_event: called with what happens. An event is what a job told, or its kind is Placed (device, attempt, alone)
            or Over (status, reason).
        stop: ends all politely; `resume_queue` goes on with the rest.
        name: a part of the folder's name.
        admission: preconditions of the scheduler.
        monitors: makes what looks at the devices.

    Returns:
        The queue's folder: queue.json, the jobs' run folders, and their logs.

    Raises:
        UserError: a queue that no scheduler can place, or a folder cannot be made.
    """
    scheduler = Scheduler(queue, _packing(devices), policy, admission=admission)
    folder, record = new_queue(runs_dir, queue, devices, policy.name, mode, name)
    with QueueRecord.locked(folder):
        QueueRun(folder, record, scheduler, devices, on_event, stop).run(monitors)
    return folder


def resume_queue(
    folder: Path,
    devices: Sequence[LiveDevice],
    *,
    on_event: OnJobEvent,
    stop: StopRequest,
    admission: Admission | None = None,
    monitors: Monitors = Monitor,
) -> None:
    """Go on with a queue that was cut short: what is done stays, all else runs again.

    A job that ran out of memory before runs alone now, and for the last time.

    Args:
        folder: of the queue.
        devices: as it had them; the other arguments are as for `run_queue`.

    Raises:
        UserError: it is still running, is done, or was run on another machine or other devices.
    """
    with QueueRecord.locked(folder):
        record = read_queue_record(folder)
        names, here = [each.name for each in record.devices], [live.packing.name for live in devices]
        if names != here:
            raise UserError(f"{folder}: this queue ran on {', '.join(names)}, and here are {', '.join(here)}.")
        rest = _remaining(record, _packing(devices))
        if not rest:
            raise UserError(f"{folder}: all jobs of this queue are done: there is nothing to go on with.")
        record.go_on(folder)
        record.devices = _packing(devices)
        policy = get_policy(record.policy)
        scheduler = Scheduler(rest, _packing(devices), policy, admission=admission)
        QueueRun(folder, record, scheduler, devices, on_event, stop).run(monitors)


def _remaining(record: QueueRecord, devices: Sequence[PackingDevice]) -> list[QueuedJob]:
    """The jobs that are to run, in their order; in the record they are expected again, and no attempt is open.

    One that ran out of memory is believed to need more than any device has, so that it gets one alone.
    """
    largest_bytes = max(device.memory_bytes for device in devices)
    rest = []
    for job in record.jobs:
        if job.status == "done":
            continue
        for attempt in job.attempts:
            if attempt.ends_s is None:
                attempt.ends_s, attempt.ending = record.elapsed_s, "stopped"
                attempt.reason = "its packer was killed"
        job.status = "expected"
        queued = job.queued
        if job.ran_out_of_memory:
            queued = replace(queued, profile=replace(queued.profile, memory_estimate_bytes=largest_bytes + 1))
        rest.append(queued)
    return rest


def _packing(devices: Sequence[LiveDevice]) -> list[PackingDevice]:
    return [live.packing for live in devices]

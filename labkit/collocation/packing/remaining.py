"""What is left of a queue that was cut short."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from labkit.collocation.packing.device_state import PackingDevice
from labkit.collocation.packing.queue_record import QueueRecord
from labkit.collocation.packing.queued_job import QueuedJob
from labkit.collocation.packing.tracked_job import TrackedJob


def remaining_queue(record: QueueRecord, devices: Sequence[PackingDevice]) -> list[QueuedJob]:
    """The jobs that are to run, in their order; in the record they are expected again, and no attempt is open.

    One that ran out of memory is believed to need more than any device has, so that it gets one alone.

    Args:
        record: as it was read.
        devices: that the rest runs on.
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
        if is_to_run_alone(job):
            queued = replace(queued, profile=replace(queued.profile, memory_estimate_bytes=largest_bytes + 1))
        rest.append(queued)
    return rest


def is_to_run_alone(job: TrackedJob) -> bool:
    """Whether a job ran out of memory in an earlier attempt."""
    return any(attempt.ending == "out of memory" for attempt in job.attempts)

"""Checks every job of a queue against the devices there are, before anything starts, and says who may join whom."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from labkit.collocation.packing.live_device import LiveDevice
from labkit.collocation.packing.policy import Admission, PackingDevice, cpu_admission
from labkit.collocation.packing.queue import JobProfile, QueuedJob
from labkit.collocation.packing.recorded_profiles import RecordedProfiles, read_recorded, shared_slowdown
from labkit.collocation.plan.planned_job import PlannedJob
from labkit.collocation.plan_check import job_memory
from labkit.errors import UserError
from labkit.hardware.sizes import size_text

ALL = 1.0
"""A job of which nobody knows how busy it keeps a device is taken to keep all of it busy: it is not put beside others
on a GPU, and beside others on a CPU only where they leave something."""


@dataclass(frozen=True)
class CheckedQueueJob:
    """One row of the table before the start."""

    queued: QueuedJob
    """With its profile, where there can be one"""
    source: str
    """Where its memory and its utilisation are from, in words"""
    fits: tuple[str, ...] = ()
    """Names of the devices that have its memory"""
    why_not: tuple[str, ...] = ()
    """Nothing may start while there is a reason against any row"""


def check_queue(
    queue: Sequence[QueuedJob],
    devices: Sequence[PackingDevice],
    estimate: Callable[[PlannedJob], int | None],
    recorded: RecordedProfiles | None = None,
) -> list[CheckedQueueJob]:
    """Find what each job asks for, and which devices have it; nothing is started.

    What a row says itself counts first. Otherwise its memory is measured, and how busy it keeps a device is what was
    recorded of such a job, or all of it.

    Args:
        queue: as it was read.
        devices: that it is to run on.
        estimate: bytes that a job's process takes; None where nobody knows. Jobs that are alike are estimated once.
        recorded: profiles of a device of the same kind.
    """
    estimated: dict[tuple, int | str] = {}
    largest = max(devices, key=lambda device: device.memory_bytes)
    rows = []
    for queued in queue:
        job, own, why_not = queued.job, queued.profile, []
        if any(each is not None for each in (job.device, job.cores, job.gpu_percent, job.mig_profile)):
            why_not.append("the packer chooses devices: leave device, cores, gpu_percent and mig_profile away")
        needs, source = own.memory_estimate_bytes if own else job.memory_bytes, "needs by the queue"
        if needs is None:
            if job.job_key not in estimated:
                estimated[job.job_key] = _estimated(job, estimate)
            needs, source = estimated[job.job_key], "needs by its first steps"
        if isinstance(needs, str):
            rows.append(CheckedQueueJob(queued, source, why_not=(*why_not, needs)))
            continue
        profile, busy = _profile(queued, needs, recorded)
        fits = tuple(device.name for device in devices if device.memory_bytes >= needs)
        if not fits:
            why_not.append(
                f"{queued.name} needs {size_text(needs)} of memory, and {largest.name}, which has most, has "
                f"{size_text(largest.memory_bytes)} free: make its batch smaller, or write the memory that it was "
                "measured to need"
            )
        rows.append(CheckedQueueJob(replace(queued, profile=profile), f"{source}, {busy}", fits, tuple(why_not)))
    return rows


def refuse_if_any(rows: Sequence[CheckedQueueJob], nothing: str = "nothing was started:") -> list[QueuedJob]:
    """The jobs with their profiles.

    Raises:
        UserError: something is against a row; with one line for each such row.
    """
    lines = [f"  {row.queued.place}: {'; '.join(row.why_not)}" for row in rows if row.why_not]
    if lines:
        raise UserError("\n".join([nothing, *lines]))
    return [row.queued for row in rows]


def check_here(queue: Sequence[QueuedJob], live: Sequence[LiveDevice]) -> list[CheckedQueueJob]:
    """Check a queue against these devices, with the memory of their first steps and what ships of recorded profiles."""
    kind = "cpu" if live[0].on_cpu else "cuda"
    recorded = read_recorded() if live[0].on_cpu else None
    return check_queue(queue, [each.packing for each in live], partial(job_memory, kind=kind), recorded)


def admission_here(live: Sequence[LiveDevice]) -> Admission:
    """Who may join whom: on a CPU by the recorded pairs, else by utilisations."""
    return cpu_admission(shared_slowdown(read_recorded())) if live[0].on_cpu else Admission()


def _estimated(job: PlannedJob, estimate: Callable[[PlannedJob], int | None]) -> int | str:
    """Bytes, or why there are none."""
    try:
        unknown = f"nobody knows what {job.label} asks for: write its memory and utilisation, such as 2GiB and 0.5"
        return estimate(job) or unknown
    except UserError as error:
        return str(error).rstrip(".")


def _profile(queued: QueuedJob, memory_bytes: int, recorded: RecordedProfiles | None) -> tuple[JobProfile, str]:
    """A profile, and where its utilisation is from; times of the recorded machine are not in it."""
    own, like = queued.profile, recorded.of(queued.job) if recorded else None
    if own is not None:
        return replace(own, like=like and like.like), "busy by the queue"
    if like is None:
        return JobProfile(memory_bytes, ALL), "busy unknown: taken as all"
    return JobProfile(memory_bytes, like.utilisation, like=like.like), f"busy recorded on {recorded.device}"

"""Checks every job of a queue against the devices there are, before anything starts, and says who may join whom."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from labkit.collocation.interference.machine import Machine, measure_machine
from labkit.collocation.packing.admission import Admission
from labkit.collocation.packing.device_state import PackingDevice
from labkit.collocation.packing.job_profile import JobProfile
from labkit.collocation.packing.live_device import LiveDevice
from labkit.collocation.packing.queued_job import QueuedJob
from labkit.collocation.packing.recorded_profiles import RecordedProfiles, cpu_admission, read_recorded, shared_slowdown
from labkit.collocation.plan.planned_job import PlannedJob
from labkit.collocation.plan_check import job_memory
from labkit.errors import UserError
from labkit.hardware.sizes import size_text

Estimate = Callable[[PlannedJob], int | None]
"""Bytes that a job's process takes; None where nobody knows."""
ALL = 1.0
"""A job of which nobody knows how busy it keeps a device is taken to keep all of it busy: it is not put beside others
on a GPU, and beside others on a CPU only where they leave something."""


@dataclass(frozen=True)
class CheckedQueueJob:
    """One row of the table before the start."""

    queued: QueuedJob
    """With its profile, where there can be one"""
    memory_from: str
    """Where its memory is from: the queue, its first steps; empty where it is not known"""
    busy_from: str
    """The same for its utilisation"""
    fits: tuple[str, ...] = ()
    """Names of the devices that have its memory"""
    why_not: tuple[str, ...] = ()

    @property
    def refusal(self) -> str:
        """All reasons in one line, with where the row stands."""
        return f"{self.queued.job.where or self.queued.name}: {'; '.join(self.why_not)}"


@dataclass(frozen=True)
class QueueCheck:
    """What came of a check."""

    rows: tuple[CheckedQueueJob, ...]

    @property
    def refusals(self) -> list[str]:
        """One a row; nothing may start while there is one."""
        return [row.refusal for row in self.rows if row.why_not]

    @property
    def queue(self) -> list[QueuedJob]:
        """The jobs with profiles."""
        return [row.queued for row in self.rows]


def check_queue_here(
    queue: Sequence[QueuedJob],
    devices: Sequence[PackingDevice],
    estimate: Estimate,
    recorded: RecordedProfiles | None = None,
    *,
    here: bool = True,
) -> QueueCheck:
    """Find what each job asks for, and which devices have it; nothing is started.

    What a row says itself counts first. Otherwise its memory is measured, and how busy it keeps a device is what was
    recorded of such a job, or all of it.

    Args:
        queue: as it was read.
        devices: that it is to run on.
        estimate: of a job's memory.
        recorded: profiles of a device of the same kind.
        here: whether that was this very machine, so that their durations and their memory hold here, too.
    """
    check = _Check(devices, estimate, recorded, here)
    return QueueCheck(tuple(check.row(queued) for queued in queue))


def on_cpu(live: Sequence[LiveDevice]) -> bool:
    """Whether the devices of a queue are the CPU or its partitions; they are all of one kind."""
    return live[0].device.kind == "cpu"


def _recorded_of(live: Sequence[LiveDevice]) -> RecordedProfiles | None:
    """The profiles that ship with labkit, which are of a CPU; None for GPUs."""
    return read_recorded() if on_cpu(live) else None


def _is_recorded_here(recorded: RecordedProfiles | None, live: Sequence[LiveDevice]) -> bool:
    """Whether profiles were recorded on such a machine as this one, so that all of their numbers hold here."""
    return recorded is not None and recorded.machine.is_like(_this_machine, live[0].device)


@functools.cache
def _this_machine() -> Machine:
    return measure_machine()


def check_here(queue: Sequence[QueuedJob], live: Sequence[LiveDevice]) -> QueueCheck:
    """Check a queue against these devices, with the memory of their first steps and what ships of recorded profiles."""
    kind = "cpu" if on_cpu(live) else "cuda"
    recorded = _recorded_of(live)
    return check_queue_here(
        queue,
        [each.packing for each in live],
        lambda job: job_memory(job, kind),
        recorded,
        here=_is_recorded_here(recorded, live),
    )


def admission_here(live: Sequence[LiveDevice], mode: str, margin_bytes: int = 0) -> Admission:
    """Who may join whom: by the interference model where jobs were profiled on such a machine, else by utilisations."""
    if not on_cpu(live):
        return Admission(margin_bytes)
    recorded = _recorded_of(live)
    machine = recorded.machine if _is_recorded_here(recorded, live) else None
    return cpu_admission(shared_slowdown(machine, mode, live[0].cores / live[0].device.cores), margin_bytes)


class _Check:
    """Checks rows, and estimates jobs that are alike once."""

    def __init__(
        self,
        devices: Sequence[PackingDevice],
        estimate: Estimate,
        recorded: RecordedProfiles | None,
        here: bool,
    ):
        self.devices, self.recorded, self.here = devices, recorded, here
        self._estimate = estimate
        self._estimated: dict[tuple, int | UserError | None] = {}

    def row(self, queued: QueuedJob) -> CheckedQueueJob:
        faults = _asks_too_much(queued)
        try:
            memory_bytes, memory_from = self._memory(queued)
        except UserError as error:
            return CheckedQueueJob(queued, "", "", why_not=(*faults, str(error).rstrip(".")))
        profile, busy_from = self._profile(queued, memory_bytes)
        fits = tuple(device.name for device in self.devices if device.memory_bytes >= memory_bytes)
        if not fits:
            largest = max(self.devices, key=lambda device: device.memory_bytes)
            faults.append(
                f"{queued.name} needs {size_text(memory_bytes)} of memory by {memory_from}, and {largest.name}, which "
                f"has most, has {size_text(largest.memory_bytes)} free: make its batch smaller, or write the memory "
                "that it was measured to need"
            )
        return CheckedQueueJob(replace(queued, profile=profile), memory_from, busy_from, fits, tuple(faults))

    def _memory(self, queued: QueuedJob) -> tuple[int, str]:
        """Bytes, and where they are from."""
        job = queued.job
        if given := queued.profile.memory_estimate_bytes if queued.profile else job.memory_bytes:
            return given, "the queue"
        if job.likeness not in self._estimated:
            try:
                self._estimated[job.likeness] = self._estimate(job)
            except UserError as error:
                self._estimated[job.likeness] = error
        estimated = self._estimated[job.likeness]
        if isinstance(estimated, UserError):
            raise estimated
        if estimated is None:
            raise UserError(
                f"nobody knows what {job.label} asks for: write its memory and utilisation, such as 2GiB and 0.5"
            )
        return estimated, "its first steps"

    def _profile(self, queued: QueuedJob, memory_bytes: int) -> tuple[JobProfile, str]:
        """A profile, and where its utilisation is from."""
        own, like = queued.profile, self.recorded.of(queued.job) if self.recorded else None
        if own is not None:
            return replace(own, solo=own.solo or (like.solo if like else None)), "the queue"
        if like is None:
            return JobProfile(memory_bytes, ALL, note="nothing but its memory is known"), "unknown: taken as all"
        like = replace(like, memory_estimate_bytes=memory_bytes)
        if not self.here:
            like = replace(like, duration_s=None, memory_bytes=None)
        return like, f"recorded on {self.recorded.machine.device}"


def _asks_too_much(queued: QueuedJob) -> list[str]:
    job, faults = queued.job, []
    if job.device is not None:
        faults.append(f"it asks for device {job.device}, and the packer chooses devices: leave that away")
    if job.cores is not None or job.gpu_percent is not None or job.mig_profile is not None:
        faults.append("cores, gpu_percent and mig_profile are for `labkit collocate`: leave them away")
    return faults

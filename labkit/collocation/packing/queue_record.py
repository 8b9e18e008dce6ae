"""`queue.json`: a queue, its devices, and each start of each job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypedDict

from labkit.collocation.launching.jobs_record import JobsRecord
from labkit.collocation.packing.device_state import PackingDevice
from labkit.collocation.packing.job_profile import JobProfile
from labkit.collocation.packing.queued_job import Attempt, QueuedJob, TrackedJob
from labkit.collocation.packing.recorded_profiles import profile_from_dict
from labkit.collocation.plan.planned_job import PlannedJob
from labkit.json_data import check_shape

if TYPE_CHECKING:
    from labkit.collocation.packing.live_device import LiveDevice


@dataclass(kw_only=True)
class QueueRecord(JobsRecord):
    """The content of `queue.json`. Seconds count from the queue's opening, without the time in which it lay still."""

    KIND: ClassVar[str] = "queue"

    policy: str
    mode: str
    """How jobs share a device: cpu-shared, cpu-pinned, or naive on GPUs"""
    devices: list[PackingDevice]
    jobs: list[TrackedJob]
    """In the order of the queue"""
    elapsed_s: float = 0.0
    """Since the opening, at the last change"""
    energy_j: float | None = None
    energy_note: str = ""

    def content(self) -> dict[str, Any]:
        return super().content() | {"jobs": [_job_to_dict(job) for job in self.jobs]}

    def attempt_of(self, name: str) -> Attempt:
        """The latest attempt of a job."""
        return next(job for job in self.jobs if job.name == name).attempts[-1]


def new_queue(
    runs_dir: Path, queue: Sequence[QueuedJob], devices: Sequence[LiveDevice], policy: str, mode: str, name: str
) -> tuple[Path, QueueRecord]:
    """Make the folder of a queue; its record, not yet saved, has all jobs expected.

    Raises:
        UserError: no folder can be made there.
    """
    folder = QueueRecord.new_folder(runs_dir, name)
    return folder, QueueRecord(
        id=folder.name,
        policy=policy,
        mode=mode,
        devices=[live.packing for live in devices],
        jobs=[TrackedJob(job) for job in queue],
    )


def read_queue_record(folder: Path | str) -> QueueRecord:
    """Read a queue's record; one whose packer died shows as "interrupted".

    Raises:
        UserError: there is none, or it is damaged, or another version of labkit wrote it.
    """
    return QueueRecord.read(folder, _parts)


class _Parts(TypedDict):
    """What is beside that of every record, as it stands in the file."""

    policy: str
    mode: str
    devices: list[PackingDevice]
    jobs: list[_Job]
    elapsed_s: float
    energy_j: float | None
    energy_note: str


class _Job(TypedDict):
    job: PlannedJob
    arrives_s: float
    profile: JobProfile | None
    status: str
    attempts: list[Attempt]


def _parts(content: dict[str, Any]) -> dict[str, Any]:
    check_shape(content, _Parts)
    return {
        "devices": [PackingDevice(**device) for device in content["devices"]],
        "jobs": [_job_from_dict(job) for job in content["jobs"]],
    }


def _job_to_dict(job: TrackedJob) -> dict[str, Any]:
    return asdict(job.queued) | {"status": job.status, "attempts": [asdict(attempt) for attempt in job.attempts]}


def _job_from_dict(values: dict[str, Any]) -> TrackedJob:
    profile = values["profile"] and profile_from_dict(values["profile"])
    queued = QueuedJob(PlannedJob.from_dict(values["job"]), values["arrives_s"], profile)
    attempts = [Attempt(**attempt) for attempt in values["attempts"]]
    return TrackedJob(queued, values["status"], attempts[-1].queued_s if attempts else None, attempts=attempts)

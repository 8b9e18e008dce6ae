"""`queue.json`: a queue, its devices, and each start of each job, replaced in one step whenever that changes."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit.collocation.launching.jobs_folder import new_jobs_folder
from labkit.collocation.packing.device_state import PackingDevice
from labkit.collocation.packing.queued_job import QueuedJob
from labkit.collocation.packing.recorded_profiles import profile_from_dict
from labkit.collocation.packing.tracked_job import Attempt, TrackedJob
from labkit.collocation.plan.planned_job import PlannedJob
from labkit.errors import UserError
from labkit.runs import Provenance
from labkit.runs.atomic import replace_text
from labkit.runs.process import is_alive, own_process
from labkit.runs.record import timestamp

if TYPE_CHECKING:
    from labkit.collocation.packing.live_device import LiveDevice

SCHEMA_VERSION = 2
"""Up to 1, a job had a kind and a request"""
QUEUE_FILE = "queue.json"


@dataclass
class LiveAttempt(Attempt):
    """One start of a job's process. Its ending can also be "stopped": by the user, or by the packer's own end."""

    run: str | None = None
    """Its run folder's name, in the queue's folder"""
    reason: str = ""
    """Of its end, in words"""


@dataclass
class QueueRecord:
    """The content of `queue.json`. Seconds count from the queue's opening, without the time in which it lay still."""

    id: str
    policy: str
    mode: str
    """How jobs share a device: cpu-shared, cpu-pinned, or naive on GPUs"""
    devices: list[PackingDevice]
    jobs: list[TrackedJob]
    """In the order of the queue; their attempts are LiveAttempt"""
    host: str
    provenance: Provenance
    status: str
    """running, done, failed (some job), stopped, or interrupted"""
    pid: int
    pid_started: float
    started_at: str
    elapsed_s: float = 0.0
    """Since the opening, at the last change"""
    energy_j: float | None = None
    energy_note: str = ""
    ended_at: str | None = None
    schema_version: int = SCHEMA_VERSION

    def save(self, folder: Path) -> None:
        """Write `queue.json` in one step."""
        content = asdict(self) | {"jobs": [_job_to_dict(job) for job in self.jobs]}
        replace_text(folder / QUEUE_FILE, json.dumps(content, indent=1) + "\n")

    def attempt_of(self, name: str) -> LiveAttempt:
        """The latest attempt of a job."""
        return next(job for job in self.jobs if job.name == name).attempts[-1]


def new_queue(
    runs_dir: Path, queue: Sequence[QueuedJob], devices: Sequence[LiveDevice], policy: str, mode: str, name: str
) -> tuple[Path, QueueRecord]:
    """Make the folder of a queue; its record, not yet saved, has all jobs expected.

    Raises:
        UserError: no folder can be made there.
    """
    folder = new_jobs_folder(runs_dir, "queue", name)
    pid, pid_started = own_process()
    return folder, QueueRecord(
        id=folder.name,
        policy=policy,
        mode=mode,
        devices=[live.packing for live in devices],
        jobs=[TrackedJob(job) for job in queue],
        host=platform.node(),
        provenance=Provenance.now("measured"),
        status="running",
        pid=pid,
        pid_started=pid_started,
        started_at=timestamp(),
    )


def read_queue_record(folder: Path | str) -> QueueRecord:
    """Read a queue's record; one whose packer died shows as "interrupted".

    Raises:
        UserError: there is none, or it is damaged, or a newer labkit wrote it.
    """
    path = Path(folder) / QUEUE_FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["schema_version"] > SCHEMA_VERSION:
            raise UserError(f"{path}: a newer labkit wrote this queue: upgrade labkit to open it.")
        if content["schema_version"] < SCHEMA_VERSION:
            raise UserError(f"{path}: an older labkit wrote this queue, whose jobs were no scripts: run it anew.")
        content |= {
            "provenance": Provenance(**content["provenance"]),
            "devices": [PackingDevice(**device) for device in content["devices"]],
            "jobs": [_job_from_dict(job) for job in content["jobs"]],
        }
        record = QueueRecord(**content)
    except FileNotFoundError:
        raise UserError(f"{folder}: this is no queue that was run, because it has no {QUEUE_FILE}.") from None
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(
            f"{path}: this record is damaged ({error}). The run folders beside it may still be readable; restore "
            f"{QUEUE_FILE} from a copy, or delete the folder."
        ) from error
    if record.status == "running" and not (record.host == platform.node() and is_alive(record.pid, record.pid_started)):
        record.status = "interrupted"
    return record


def find_queue(queue: str, runs_dir: Path | str) -> Path:
    """The folder of a queue named by its folder, its id, or the beginning of its id.

    Raises:
        UserError: no queue, or more than one, goes by that name.
    """
    if (Path(queue) / QUEUE_FILE).is_file():
        return Path(queue)
    folders = sorted(path.parent for path in Path(runs_dir).glob(f"*/{QUEUE_FILE}"))
    matches = [folder for folder in folders if folder.name.startswith(queue)]
    if len(matches) == 1:
        return matches[0]
    what = "could be " + ", ".join(f.name for f in matches[:5]) if matches else f"is none of those in {runs_dir}"
    there = ", ".join(folder.name for folder in folders[-5:]) or "none"
    raise UserError(f"queue {queue!r} {what}: write (more of) the name of one; the latest are {there}.")


def _job_to_dict(job: TrackedJob) -> dict[str, Any]:
    profile = job.queued.profile
    return {
        "job": job.queued.job.to_dict(),
        "arrives_s": job.queued.arrives_s,
        "profile": None if profile is None else profile.to_dict(),
        "status": job.status,
        "attempts": [asdict(attempt) for attempt in job.attempts],
    }


def _job_from_dict(values: dict[str, Any]) -> TrackedJob:
    profile = values["profile"] and profile_from_dict(values["profile"])
    queued = QueuedJob(PlannedJob.from_dict(values["job"]), values["arrives_s"], profile)
    attempts = [LiveAttempt(**attempt) for attempt in values["attempts"]]
    return TrackedJob(queued, values["status"], attempts[-1].queued_s if attempts else None, attempts=attempts)

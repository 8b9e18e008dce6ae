"""Check a queue and run it, telling who starts and ends; or predict that from profiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from labkit.errors import UserError
from labkit.hardware import size_text
from labkit.sharing.launching.job import JobEvent, OnJobEvent
from labkit.sharing.packing.live_device import LiveDevice, live_devices
from labkit.sharing.packing.policy import PackingDevice, cpu_admission, get_policy
from labkit.sharing.packing.queue import JobProfile, QueuedJob
from labkit.sharing.packing.queue_run import QueueRecord, run_queue
from labkit.sharing.packing.recorded_profiles import RecordedProfiles, read_recorded, shared_slowdown
from labkit.sharing.packing.scheduler import Schedule
from labkit.sharing.packing.simulate import simulate
from labkit.sharing.plan.planned_job import PlannedJob
from labkit.sharing.plan_check import job_memory
from labkit.tracking import StopRequest

NOBODY_KNOWS = "nobody knows what {} asks for: write its memory and utilisation, such as 2GiB and 0.5"


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

    What a row says itself counts first. Otherwise its memory is estimated, in bytes, once for jobs that are alike, and
    how busy it keeps a device is what was recorded of such a job on a device of that kind, or all of it.
    """
    estimated: dict[tuple, int | str] = {}  # bytes, or why there are none
    largest = max(devices, key=lambda device: device.memory_bytes)
    rows = []
    for queued in queue:
        job, own, why_not = queued.job, queued.profile, []
        like = recorded.of(job) if recorded else None
        if any(each is not None for each in (job.device, job.cores, job.gpu_percent, job.mig_profile)):
            why_not.append("the packer chooses devices: leave device, cores, gpu_percent and mig_profile away")
        needs, source = own.memory_estimate_bytes if own else job.memory_bytes, "needs by the queue"
        if needs is None:
            if job.job_key not in estimated:
                try:
                    estimated[job.job_key] = estimate(job) or NOBODY_KNOWS.format(job.label)
                except UserError as error:
                    estimated[job.job_key] = str(error).rstrip(".")
            needs, source = estimated[job.job_key], "needs by its first steps"
        if isinstance(needs, str):
            rows.append(CheckedQueueJob(queued, source, why_not=(*why_not, needs)))
            continue
        if own is not None:
            profile, busy = replace(own, like=like and like.like), "by the queue"
        elif like is None:
            profile, busy = JobProfile(needs, 1.0), "unknown: taken as all"
        else:  # its times are the recorded machine's
            profile, busy = JobProfile(needs, like.utilisation, like=like.like), f"recorded on {recorded.device}"
        fits = tuple(device.name for device in devices if device.memory_bytes >= needs)
        if not fits:
            why_not.append(
                f"{queued.name} needs {size_text(needs)} of memory, and {largest.name}, which has most, has "
                f"{size_text(largest.memory_bytes)} free: make its batch smaller, or write the memory that it was "
                "measured to need"
            )
        rows.append(CheckedQueueJob(replace(queued, profile=profile), f"{source}, busy {busy}", fits, tuple(why_not)))
    return rows


def refuse_if_any(rows: Sequence[CheckedQueueJob], nothing: str = "nothing was started:") -> list[QueuedJob]:
    """The jobs with their profiles; a UserError with one line for each row that something is against."""
    lines = [f"  {row.queued.place}: {'; '.join(row.why_not)}" for row in rows if row.why_not]
    if lines:
        raise UserError("\n".join([nothing, *lines]))
    return [row.queued for row in rows]


def check_here(queue: Sequence[QueuedJob], live: Sequence[LiveDevice]) -> list[CheckedQueueJob]:
    """Check a queue against these devices, with the memory of their first steps and what ships of recorded profiles."""
    kind = "cpu" if live[0].on_cpu else "cuda"
    recorded = read_recorded() if live[0].on_cpu else None
    return check_queue(queue, [each.packing for each in live], partial(job_memory, kind=kind), recorded)


def pack(
    queue: Sequence[QueuedJob],
    policy: str,
    *,
    runs_dir: Path | str,
    memory_bytes: int | None = None,
    tell: Callable[[str], None] = print,
) -> Schedule:
    """Really run a queue on the CPU; interrupting the kernel ends it politely.

    Args:
        queue: the jobs.
        policy: its name.
        runs_dir: the folder that the queue's folder is made in.
        memory_bytes: of the machine's memory that counts; None takes all that is free.
        tell: told of each start and end.

    Raises:
        UserError: a job cannot run here; nothing was started then. Or a job failed.
        KeyboardInterrupt: after all jobs have ended.
    """
    chosen, live = get_policy(policy), live_devices(["cpu"], memory_bytes=memory_bytes)
    checked = refuse_if_any(check_here(queue, live))
    with StopRequest() as stop:
        ways = {"runs_dir": Path(runs_dir), "on_event": telling(tell), "stop": stop, "name": policy}
        folder = run_queue(checked, live, chosen, **ways)
    if stop:
        raise KeyboardInterrupt
    record = QueueRecord.read(folder)
    if broken := [job for job in record.jobs if job.status != "done"]:
        reasons = (f"{job.name}: {job.attempts[-1].reason if job.attempts else job.status}" for job in broken)
        raise UserError("\n".join([f"{folder}:", *reasons]))
    return record.schedule


def predict(queue: Sequence[QueuedJob], policy: str, *, memory_bytes: int) -> Schedule:
    """What `pack` would come to on the machine of the recorded profiles.

    No job runs out of memory in it: nothing holds a job to its estimate where cores are shared. A job that was never
    recorded is a UserError.
    """
    recorded = read_recorded()
    known = [
        replace(job, profile=job.profile and replace(job.profile, memory_bytes=job.profile.memory_estimate_bytes))
        for job in recorded.fill(queue)
    ]
    slowdown = shared_slowdown(recorded)
    device = PackingDevice("cpu", memory_bytes)
    return simulate(known, [device], get_policy(policy), slowdown=slowdown, admission=cpu_admission(slowdown))


def telling(tell: Callable[[str], None]) -> OnJobEvent:
    """What tells the starts and ends of a queue's jobs, and what they want known, each text once."""
    told: set[str] = set()

    def on_event(event: JobEvent) -> None:
        what, text = event.event, None
        if what["kind"] == "Placed":
            again = f", attempt {what['attempt']}" if what["attempt"] > 1 else ""
            text = f"{event.job} starts on {what['device']}{', alone' if what['alone'] else ''}{again}"
        elif what["kind"] == "Over":
            text = f"{event.job} ends, {what['status']}{'' if what['status'] == 'done' else ': ' + what['reason']}"
        elif what["kind"] == "Notice":
            text = what["text"]
        if text is not None and text not in told:
            told.add(text)
            tell(text)

    return on_event

"""Check a queue and run it, telling who starts and ends; or predict that from profiles: the notebooks' way to pack."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from labkit.collocation.launching.job import JobEvent, OnJobEvent
from labkit.collocation.packing.live_device import live_devices
from labkit.collocation.packing.policy import PackingDevice, cpu_admission, get_policy
from labkit.collocation.packing.queue import QueuedJob
from labkit.collocation.packing.queue_check import check_here, refuse_if_any
from labkit.collocation.packing.queue_run import QueueRecord, run_queue
from labkit.collocation.packing.recorded_profiles import read_recorded, shared_slowdown
from labkit.collocation.packing.schedule import Schedule
from labkit.collocation.packing.simulate import simulate
from labkit.errors import UserError
from labkit.tracking.stop import StopRequest


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

"""Check a queue and run it, telling who starts and ends; or predict that from profiles: the notebooks' way to pack."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from labkit.collocation.launching.round import JobEvent
from labkit.collocation.packing.device_state import PackingDevice
from labkit.collocation.packing.live import run_queue
from labkit.collocation.packing.live_device import live_devices
from labkit.collocation.packing.policy import get_policy
from labkit.collocation.packing.queue_check import admission_here, check_here
from labkit.collocation.packing.queue_record import read_queue_record
from labkit.collocation.packing.queued_job import QueuedJob
from labkit.collocation.packing.recorded_profiles import cpu_admission, read_recorded, shared_slowdown
from labkit.collocation.packing.schedule import Schedule, measured_schedule
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
    """Really run a queue on the CPU, its cores shared.

    Interrupting the kernel ends it politely; what it did until then stays in its folder, and `labkit pack --resume`
    goes on with it.

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
    mode, chosen = "cpu-shared", get_policy(policy)
    live = live_devices(mode, ["cpu"], memory_bytes=memory_bytes)
    found = check_here(queue, live)
    if found.refusals:
        raise UserError("\n".join(["nothing was started:", *found.refusals]))
    with StopRequest() as stop:
        folder = run_queue(
            found.queue,
            live,
            chosen,
            mode=mode,
            runs_dir=Path(runs_dir),
            on_event=_line_an_event(tell),
            stop=stop,
            name=policy,
            admission=admission_here(live, mode),
        )
    if stop:
        raise KeyboardInterrupt
    record = read_queue_record(folder)
    if broken := [job for job in record.jobs if job.status != "done"]:
        reasons = (f"{job.name}: {job.attempts[-1].reason if job.attempts else job.status}" for job in broken)
        raise UserError("\n".join([f"{folder}:", *reasons]))
    return measured_schedule(record)


def predict(queue: Sequence[QueuedJob], policy: str, *, memory_bytes: int) -> Schedule:
    """What `pack` would come to on the machine of the recorded profiles.

    No job runs out of memory in it: nothing holds a job to its estimate where cores are shared.

    Args:
        queue: jobs that were recorded.
        policy: its name.
        memory_bytes: that the policy counts with.

    Raises:
        UserError: a job was never recorded.
    """
    recorded = read_recorded()
    known = [
        replace(job, profile=job.profile and replace(job.profile, memory_bytes=job.profile.memory_estimate_bytes))
        for job in recorded.fill(queue)
    ]
    slowdown = shared_slowdown(recorded.machine, "cpu-shared")
    device = PackingDevice("cpu", memory_bytes)
    return simulate(known, [device], get_policy(policy), slowdown=slowdown, admission=cpu_admission(slowdown))


def _line_an_event(tell: Callable[[str], None]) -> Callable[[JobEvent], None]:
    def hear(event: JobEvent) -> None:
        if event.event["kind"] == "Placed":
            tell(f"{event.job} starts{', alone' if event.event['alone'] else ''}")
        elif event.event["kind"] == "Over":
            reason = f": {event.event['reason']}" if event.event["status"] != "done" else ""
            tell(f"{event.job} ends, {event.event['status']}{reason}")

    return hear

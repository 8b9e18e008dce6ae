"""From a planned job, and what it gets of a device, to the process that runs it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from labkit.collocation.modes.place import Share
from labkit.collocation.plan.planned_job import PlannedJob
from labkit.hardware.budgets.names import parse_budget
from labkit.jobs.command import script_of
from labkit.process.supervisor import JobProcess
from labkit.tracking.command import ScriptCommand

WORKER = "labkit.tracking.worker"


def script_command(job: PlannedJob) -> ScriptCommand:
    """What a job runs, wherever that is; {seed} still stands in its arguments."""
    return ScriptCommand(str(script_of(job.script)), job.arguments, folder=job.folder)


def worker_process(job: PlannedJob, share: Share, folder: Path, log: str, told: dict[str, Any]) -> JobProcess:
    """The process of a job, which waits at the barrier before its first step.

    Its run and its log are in the folder of the group or queue; `told` is what the run's record says of those it shares
    the device with (`told_of_mix`).
    """
    budget = None
    if share.memory_bytes is not None:
        cores = "" if share.cores is None else f"cores={len(share.cores)},"
        budget = parse_budget(f"{cores}memory={share.memory_bytes // 2**20}MiB")
    command = replace(
        script_command(job),
        runs_dir=str(folder),
        budget=budget,
        device=share.torch_name,
        cores=share.cores,
        waits=True,
        collocation={"group": folder.name, "job": job.name, "log": log, **told},
    )
    if job.takes_seed:
        command = command.seeded(job.seed)
    return JobProcess(job.name, WORKER, command.to_dict(), str(folder / log), share.environment)

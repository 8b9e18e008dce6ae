"""From a planned job, and what it gets of a device, to the process that runs it and what that tells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from labkit.hardware import OF_A_CPU, Budget
from labkit.jobs import script_of
from labkit.process import JobProcess
from labkit.sharing.modes.place import Share
from labkit.sharing.plan.planned_job import PlannedJob
from labkit.tracking import ScriptCommand


@dataclass(frozen=True)
class JobEvent:
    """Something that a job told, or that became of it."""

    job: str
    event: dict[str, Any]
    """Its "kind" names a class in `labkit.tracking.events`, or is Ended, Failed, Go, Placed or Over"""


OnJobEvent = Callable[[JobEvent], None]


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
        cores = None if share.cores is None else len(share.cores)
        given = "" if cores is None else f"cores={cores},"
        name = f"{given}memory={share.memory_bytes // 2**20}MiB"
        budget = Budget(name, cores, share.memory_bytes, emulated=True, not_emulated=OF_A_CPU)
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
    return JobProcess(job.name, "labkit.tracking.worker", command.to_dict(), str(folder / log), share.environment)


def told_end(told: dict[str, Any]) -> tuple[str, str, dict[str, Any]]:
    """Status, reason and answer (run, folder, result) by which a job says that it has ended."""
    answer = told if told["kind"] == "Ended" else told["answer"] or {}
    return told["status"], told.get("reason") or answer.get("result", {}).get("reason", ""), answer

"""The memory of a planned job, as the packer and the check before a start count it."""

from __future__ import annotations

from labkit.collocation.plan.planned_job import PlannedJob


def job_memory(job: PlannedJob, kind: str) -> int | None:
    """Bytes that a job's process takes on "cpu" or "cuda"; None where nobody knows.

    Where it was never measured here, the job is tried for its first steps.

    Raises:
        UserError: it was refused, or failed.
    """
    from labkit.collocation.launching.worker_process import script_command
    from labkit.collocation.memory.need import memory_need

    return memory_need(script_command(job), kind).bytes

"""The memory of a planned job, as the packer and the check before a start count it."""

from __future__ import annotations

from labkit.collocation.plan.planned_job import PlannedJob


def memory_need(job: PlannedJob, kind: str) -> int | None:
    """Bytes that a job's process is estimated to take on "cpu" or "cuda"; None where nobody knows.

    Raises:
        UserError: the job's data cannot be had.
    """
    try:
        from labkit.collocation.memory.need import memory_need as need
    except ImportError:
        return None
    return need(job, kind)

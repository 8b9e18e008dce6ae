"""Mode streams: the jobs are threads of one process, on a GPU with a CUDA stream each."""

from __future__ import annotations

from collections.abc import Sequence

from labkit.collocation.modes.cpu import cpu_share
from labkit.collocation.modes.gpu import gpu_share, why_no_gpu
from labkit.collocation.modes.place import Place, Refusal
from labkit.collocation.modes.share import Share
from labkit.collocation.plan.planned_job import PlannedJob


def why_not(jobs: Sequence[PlannedJob], place: Place) -> list[Refusal]:
    """Every reason why the jobs cannot be threads of one process."""
    used, refused = place.devices_of(jobs)
    for device in dict.fromkeys(used.values()) or [place.device]:
        refused += [(None, reason) for reason in why_no_gpu(device, place.nvml)]
    if len(set(used.values())) > 1:
        named = ", ".join(f"{name} on {device.name}" for name, device in used.items())
        refused.append((None, f"mode streams is one process on one device, and the jobs name several: {named}"))
    refused += [
        (job.name, f"{job.name} is a script, which needs a process of its own: use mode naive, mps or cpu-shared")
        for job in jobs
        if job.kind == "script"
    ]
    return refused


def shares(jobs: Sequence[PlannedJob], place: Place) -> dict[str, Share]:
    """The same for each job: all are in one process."""
    found = {}
    for job in jobs:
        device = place.device_of(job)
        if device.kind == "cpu":
            words = "a thread of one Python interpreter, which runs one job's Python at a time, on "
            found[job.name] = cpu_share(device, place.spin, words)
        else:
            found[job.name] = gpu_share(device, "a thread and CUDA stream of one process on ")
    return found

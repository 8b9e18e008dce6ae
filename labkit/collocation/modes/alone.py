"""Mode alone: one job after another, each with the whole device. The baseline of all others."""

from __future__ import annotations

from collections.abc import Sequence

from labkit.collocation.modes.cpu import cpu_share
from labkit.collocation.modes.gpu import gpu_share, why_no_gpu
from labkit.collocation.modes.place import Place, Refusal
from labkit.collocation.modes.share import Share
from labkit.collocation.plan.planned_job import PlannedJob
from labkit.telemetry.others import is_quiet


def why_not(jobs: Sequence[PlannedJob], place: Place) -> list[Refusal]:
    """Every reason why the jobs cannot run one after another."""
    used, refused = place.devices_of(jobs)
    for device in dict.fromkeys(used.values()) or [place.device]:
        refused += [(None, reason) for reason in why_no_gpu(device, place.nvml)]
    return refused


def shares(jobs: Sequence[PlannedJob], place: Place) -> dict[str, Share]:
    """The whole device for each job.

    With nobody beside it, a job on a CPU is faster if its threads wait busily, as OpenMP's do by default; but where
    other programs run, that makes it many times slower than it is.
    """
    found, quiet = {}, place.quiet
    for job in jobs:
        device = place.device_of(job)
        if device.kind == "cpu" and quiet is None:
            quiet = is_quiet()
        found[job.name] = cpu_share(device, quiet) if device.kind == "cpu" else gpu_share(device)
    return found

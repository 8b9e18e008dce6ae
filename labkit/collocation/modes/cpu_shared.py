"""Mode cpu-shared: plain processes on all cores, which the operating system shares out."""

from __future__ import annotations

from collections.abc import Sequence

from labkit.collocation.modes.cpu import cpu_share, why_no_cpu
from labkit.collocation.modes.place import Place, Refusal
from labkit.collocation.modes.share import Share
from labkit.collocation.plan.planned_job import PlannedJob


def why_not(jobs: Sequence[PlannedJob], place: Place) -> list[Refusal]:
    """Every reason why the jobs cannot share the CPU."""
    used, refused = place.devices_of(jobs)
    for device in dict.fromkeys(used.values()) or [place.device]:
        refused += [(None, reason) for reason in why_no_cpu(device, "cpu-shared", "naive")]
    return refused


def shares(jobs: Sequence[PlannedJob], place: Place) -> dict[str, Share]:
    """All cores for each job."""
    return {job.name: cpu_share(place.device_of(job), place.spin) for job in jobs}

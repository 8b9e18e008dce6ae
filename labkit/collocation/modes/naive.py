"""Mode naive: plain processes on one GPU, which takes turns between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from labkit.collocation.modes.gpu import EXCLUSIVE, compute_mode, gpu_share, gpu_text, why_no_gpu, why_the_cpu_cannot
from labkit.collocation.modes.place import Place, Refusal
from labkit.collocation.modes.share import Share
from labkit.collocation.plan.planned_job import PlannedJob


def why_not(jobs: Sequence[PlannedJob], place: Place) -> list[Refusal]:
    """Every reason why the jobs cannot share their GPUs so."""
    used, refused = place.devices_of(jobs)
    count = Counter(used.values())
    for device in count or [place.device]:
        reasons = why_the_cpu_cannot(device, "naive", "cpu-shared") + why_no_gpu(device, place.nvml)
        refused += [(None, reason) for reason in reasons]
        if count[device] != 1 and device.kind != "cpu" and compute_mode(device, place.nvml) in EXCLUSIVE:
            refused.append((None, _exclusive(gpu_text(device), device.gpu_uuid)))
    return refused


def shares(jobs: Sequence[PlannedJob], place: Place) -> dict[str, Share]:
    """The whole GPU for each job, at the same time."""
    return {job.name: gpu_share(place.device_of(job), "time slices of ") for job in jobs}


def _exclusive(name: str, uuid: str | None) -> str:
    return (
        f"the compute mode of {name} is EXCLUSIVE_PROCESS, which lets one process use it: use mode mps, or ask its "
        f"administrator for `sudo nvidia-smi -i {uuid} -c DEFAULT`"
    )

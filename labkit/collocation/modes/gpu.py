"""Mode naive, plain processes on one GPU that takes turns between them; and what all modes on a GPU have in common."""

from __future__ import annotations

from collections.abc import Sequence

from labkit.collocation.modes.place import Place, Refusal, Share
from labkit.collocation.plan.planned_job import PlannedJob
from labkit.hardware.device import Device
from labkit.hardware.nvml import Nvml
from labkit.hardware.occupants import MPS_SERVER, occupants

EXCLUSIVE, PROHIBITED = (1, 3), 2
"""Compute modes: EXCLUSIVE_THREAD and EXCLUSIVE_PROCESS, PROHIBITED. Source: NVML API, nvmlComputeMode_t."""

NO_MPS = {
    "CUDA_MPS_PIPE_DIRECTORY": "/dev/null",
    "CUDA_MPS_LOG_DIRECTORY": "",
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "",
    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "",
}
"""CUDA becomes a client of any daemon whose pipes it finds, in /tmp/nvidia-mps by default: here it finds none.

Source: nvidia-cuda-mps-control(1): where the connection fails, the program runs as without MPS.
"""


def why_not(jobs: Sequence[PlannedJob], place: Place) -> list[Refusal]:
    """Every reason why the jobs cannot share their GPUs as plain processes."""

    def against(device: Device, count: int) -> list[str]:
        reasons = why_no_gpu(device, place.nvml)
        if count != 1 and _compute_mode(device, place.nvml) in EXCLUSIVE:
            reasons.append(
                f"the compute mode of {gpu_text(device)} is EXCLUSIVE_PROCESS, which lets one process use it: use mode "
                f"mps, or ask its administrator for `sudo nvidia-smi -i {device.gpu_uuid} -c DEFAULT`"
            )
        return reasons

    return place.refusals(jobs, against)


def shares(jobs: Sequence[PlannedJob], place: Place) -> dict[str, Share]:
    """The whole GPU for each job, at the same time."""
    return {job.name: gpu_share(place.device_of(job), "time slices of ") for job in jobs}


def gpu_text(device: Device) -> str:
    """A GPU or slice in words."""
    return f"{device.name} {device.uuid}" if device.uuid else device.name


def gpu_share(device: Device, words: str = "") -> Share:
    """A share that binds a job to a GPU or slice, by its UUID and outside of every MPS; `words` tell what it gets."""
    return Share(f"{words}{gpu_text(device)}", {**visible(device), **NO_MPS}, torch_name="cuda:0")


def visible(device: Device) -> dict[str, str]:
    """The variable that makes CUDA see this device only; the GPU of a board has a number and no UUID."""
    return {"CUDA_VISIBLE_DEVICES": device.uuid or str(device.index)}


def why_no_gpu(device: Device, nvml: Nvml) -> list[str]:
    """Every reason why no job can run on a GPU or slice now; nothing for the CPU."""
    if device.kind == "cpu":
        return []
    # one that is only hidden behind another's slice is seen by a process that names it
    if device.torch_name is None and device.kind == "gpu" and (device.uuid is None or device.mig_mode == "on"):
        return [f"CUDA cannot reach {gpu_text(device)}: {device.missing.get('torch_name', 'no reason is known')}"]
    occupied = why_occupied(device, nvml) if device.uuid else None
    reasons = [occupied] if occupied else []
    if _compute_mode(device, nvml) == PROHIBITED:
        reasons.append(
            f"the compute mode of {gpu_text(device)} is PROHIBITED, so no process may use it: ask its administrator "
            f"for `sudo nvidia-smi -i {device.gpu_uuid} -c DEFAULT`"
        )
    return reasons


def why_occupied(device: Device, nvml: Nvml) -> str | None:
    """Why a GPU or slice is not free for measurements; None where it is, or where it cannot be told.

    What only draws, such as the desktop, is no reason.
    """
    computing = [each for each in occupants(device, nvml)[0] if each.kind == "compute"]
    if not computing:
        return None
    whose = "Wait until it is free, end the process if it is yours, or choose another device"
    if any((each.name or "").endswith(MPS_SERVER) for each in computing):
        whose = (
            "An MPS daemon that labkit did not start serves it, and labkit neither uses nor stops what others started: "
            "wait for its owner, or choose another device"
        )
    return f"{gpu_text(device)} is used by someone else: {', '.join(map(str, computing))}. {whose}"


def _compute_mode(device: Device, nvml: Nvml) -> int | None:
    """NVML's number, or None where it does not say."""
    handle = nvml.read("nvmlDeviceGetHandleByUUID", device.gpu_uuid)
    return None if handle.reason else nvml.read("nvmlDeviceGetComputeMode", handle.value).value

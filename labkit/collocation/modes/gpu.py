"""What all modes on a GPU have in common: reasons against a device, and the variables that bind a job to it."""

from __future__ import annotations

from labkit.collocation.modes.occupants import why_occupied
from labkit.collocation.modes.share import Share
from labkit.hardware.device import Device
from labkit.hardware.nvml import Nvml

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


def gpu_text(device: Device) -> str:
    """A GPU or slice in words.

    >>> gpu_text(Device("mig", 0, "NVIDIA A100 MIG 1g.5gb", uuid="MIG-11", mig_profile="1g.5gb"))
    'NVIDIA A100 MIG 1g.5gb MIG-11'
    """
    return f"{device.name} {device.uuid}" if device.uuid else device.name


def why_the_cpu_cannot(device: Device, mode: str, instead: str) -> list[str]:
    """Why a mode of GPUs cannot be had on this device: it is the CPU; nothing for a GPU."""
    if device.kind != "cpu":
        return []
    return [f"mode {mode} shares a GPU, and the device is the CPU: use mode {instead}, or choose a GPU"]


def why_no_gpu(device: Device, nvml: Nvml) -> list[str]:
    """Every reason why no job can run on a GPU or slice now; nothing for the CPU."""
    if device.kind == "cpu":
        return []
    # one that is only hidden behind another's slice is seen by a process that names it
    if device.torch_name is None and device.kind == "gpu" and (device.uuid is None or device.mig_mode == "on"):
        return [f"CUDA cannot reach {gpu_text(device)}: {device.missing.get('torch_name', 'no reason is known')}"]
    occupied = why_occupied(device, nvml) if device.uuid else None
    reasons = [occupied] if occupied else []
    if compute_mode(device, nvml) == PROHIBITED:
        reasons.append(
            f"the compute mode of {gpu_text(device)} is PROHIBITED, so no process may use it: ask its administrator "
            f"for `sudo nvidia-smi -i {device.gpu_uuid} -c DEFAULT`"
        )
    return reasons


def compute_mode(device: Device, nvml: Nvml) -> int | None:
    """NVML's number of the compute mode of a GPU, or None where it does not say."""
    handle = nvml.read("nvmlDeviceGetHandleByUUID", device.gpu_uuid)
    return None if handle.reason else nvml.read("nvmlDeviceGetComputeMode", handle.value).value


def gpu_share(device: Device, words: str = "") -> Share:
    """A share that binds a job to a GPU or slice, by its UUID and outside of every MPS.

    Args:
        device: a GPU or a slice.
        words: what the job gets of it; nothing for all.
    """
    return Share(f"{words}{gpu_text(device)}", {**visible(device), **NO_MPS}, torch_name="cuda:0")


def visible(device: Device) -> dict[str, str]:
    """The variable that makes CUDA see this device only; the GPU of a board has a number and no UUID."""
    return {"CUDA_VISIBLE_DEVICES": device.uuid or str(device.index)}

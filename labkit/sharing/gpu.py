"""Modes naive and mps: processes on one GPU that takes turns between them, or runs their kernels at the same time."""

from __future__ import annotations

from collections.abc import Sequence

from labkit import hardware, launch
from labkit.sharing.shares import Place, Refusal, Share

EXCLUSIVE, PROHIBITED = (1, 3), 2
"""Compute modes: EXCLUSIVE_THREAD and EXCLUSIVE_PROCESS, PROHIBITED. Source: NVML API, nvmlComputeMode_t."""
CLIENTS_BEFORE_VOLTA, CLIENTS, CLIENTS_OF_R590, R590 = 16, 48, 60, 590
"""CUDA contexts of one GPU under MPS. Source: NVIDIA, Multi-Process Service, release r590, "Client-Server Connection
Limits": 60, and 48 with CUDA 13.0 and before (driver R590 brings 13.1); release r550 for 16 before Volta."""
NO_MPS = {
    "CUDA_MPS_PIPE_DIRECTORY": "/dev/null",
    "CUDA_MPS_LOG_DIRECTORY": "",
    "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "",
    "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "",
}
"""CUDA becomes a client of any daemon whose pipes it finds, in /tmp/nvidia-mps by default: here it finds none.

Source: nvidia-cuda-mps-control(1): where the connection fails, the program runs as without MPS.
"""


def why_not_naive(jobs: Sequence[launch.PlannedJob], place: Place) -> list[Refusal]:
    """Every reason why the jobs cannot share their GPUs as plain processes."""
    return place.refusals(jobs, lambda device, count: why_no_gpu(device, place.nvml, shared=count != 1))


def naive(jobs: Sequence[launch.PlannedJob], place: Place) -> dict[str, Share]:
    """The whole GPU for each job, at the same time."""
    return {job.name: gpu_share(place.device_of(job), "time slices of ") for job in jobs}


def why_not_mps(jobs: Sequence[launch.PlannedJob], place: Place) -> list[Refusal]:
    """Every reason why the jobs cannot be clients of an MPS daemon."""

    def against(device: hardware.Device, clients: int) -> list[str]:
        reasons = why_no_gpu(device, place.nvml)
        if device.kind == "mig":
            reasons.append(
                f"{gpu_text(device)} is a MIG slice, and labkit's MPS daemon serves whole GPUs: use mode mig or naive"
            )
        if clients > (most := _most_clients(device)):
            reasons.append(
                f"{clients} jobs are more than the {most} that MPS serves on {device.name}: run fewer together"
            )
        if not (mps := hardware.find_mps())["available"]:
            reasons.append(f"{mps['note']}: install it, or use mode naive")
        return reasons

    return place.refusals(jobs, against)


def mps(jobs: Sequence[launch.PlannedJob], place: Place) -> dict[str, Share]:
    """All of the GPU for each job, or the percentage of its multiprocessors and the memory that it asks for.

    Source of the variables: NVIDIA, Multi-Process Service, "Environment Variables". CUDA counts the one GPU that it
    is left as number 0. An empty value keeps a limit from this process' own environment away.
    """
    found = {}
    for job in jobs:
        device = place.device_of(job)
        percent = "" if job.gpu_percent is None else f"{job.gpu_percent:g}"
        limit = "" if job.memory_bytes is None else f"0={max(1, job.memory_bytes // 2**20)}MB"
        bounds = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": percent, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": limit}
        own = [f"{percent} % of the multiprocessors"] if percent else []
        own += [f"{hardware.size_text(job.memory_bytes)} of the memory"] if limit else []
        words = f"{' and '.join(own) or 'all'} of {gpu_text(device)} by MPS"
        found[job.name] = Share(words, _visible(device) | bounds, torch_name="cuda:0")
    return found


def _most_clients(device: hardware.Device) -> int:
    if float(device.compute_capability or 7) < 7:
        return CLIENTS_BEFORE_VOLTA
    return CLIENTS_OF_R590 if int((device.driver_version or "0").partition(".")[0]) >= R590 else CLIENTS


def gpu_text(device: hardware.Device) -> str:
    """A GPU or slice in words."""
    return f"{device.name} {device.uuid}" if device.uuid else device.name


def gpu_share(device: hardware.Device, words: str = "") -> Share:
    """A share that binds a job to a GPU or slice, by its UUID and outside of every MPS; `words` tell what it gets."""
    return Share(f"{words}{gpu_text(device)}", {**_visible(device), **NO_MPS}, torch_name="cuda:0")


def why_no_gpu(device: hardware.Device, nvml: hardware.Nvml, *, shared: bool = False) -> list[str]:
    """Every reason why no job, or no two at the same time, can run on a GPU or slice now; nothing for the CPU."""
    if device.kind == "cpu":
        return []
    # one that is only hidden behind another's slice is seen by a process that names it
    if device.torch_name is None and device.kind == "gpu" and (device.uuid is None or device.mig_mode == "on"):
        return [f"CUDA cannot reach {gpu_text(device)}: {device.missing.get('torch_name', 'no reason is known')}"]
    occupied = why_occupied(device, nvml) if device.uuid else None
    reasons = [occupied] if occupied else []
    handle = nvml.read("nvmlDeviceGetHandleByUUID", device.gpu_uuid)
    compute_mode = None if handle.reason else nvml.read("nvmlDeviceGetComputeMode", handle.value).value
    if compute_mode == PROHIBITED or (shared and compute_mode in EXCLUSIVE):
        name, most = ("PROHIBITED", "no") if compute_mode == PROHIBITED else ("EXCLUSIVE_PROCESS", "one")
        reasons.append(
            f"the compute mode of {gpu_text(device)} is {name}, which lets {most} process use it: "
            f"{'' if most == 'no' else 'use mode mps, or '}ask its administrator for "
            f"`sudo nvidia-smi -i {device.gpu_uuid} -c DEFAULT`"
        )
    return reasons


def why_occupied(device: hardware.Device, nvml: hardware.Nvml) -> str | None:
    """Why a GPU or slice is not free for measurements; None where it is, or where it cannot be told.

    What only draws, such as the desktop, is no reason.
    """
    computing = [str(each) for each in hardware.occupants(device, nvml)[0] if each.kind == "compute"]
    if not computing:
        return None
    return (
        f"{gpu_text(device)} is used by someone else: {', '.join(computing)}. Wait until it is free, end the process "
        "if it is yours, or choose another device; labkit neither uses nor stops what others started"
    )


def _visible(device: hardware.Device) -> dict[str, str]:
    """The variable that makes CUDA see this device only; the GPU of a board has a number and no UUID."""
    return {"CUDA_VISIBLE_DEVICES": device.uuid or str(device.index)}

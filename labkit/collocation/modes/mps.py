"""Mode mps: processes whose kernels run on one GPU at the same time, by a CUDA MPS daemon of our own.

The daemon is `labkit.hardware.budgets.mps.start_mps`; its variables go to each job beside those of its share.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from labkit.collocation.modes.gpu import gpu_text, visible, why_no_gpu
from labkit.collocation.modes.place import Place, Refusal, Share
from labkit.collocation.plan.planned_job import PlannedJob
from labkit.hardware.device import Device
from labkit.hardware.sizes import size_text
from labkit.hardware.tools import find_mps

VOLTA = (7, 0)
"""Compute capability from which MPS has limits for each client."""
CLIENTS_BEFORE_VOLTA, CLIENTS, CLIENTS_OF_R590, R590 = 16, 48, 60, 590
"""CUDA contexts of one GPU. Source: NVIDIA, Multi-Process Service, release r590, "Client-Server Connection Limits":
60, and 48 with CUDA 13.0 and before (driver R590 brings 13.1); release r550 for 16 before Volta."""


def why_not(jobs: Sequence[PlannedJob], place: Place) -> list[Refusal]:
    """Every reason why the jobs cannot be clients of an MPS daemon."""

    def against(device: Device, clients: int) -> list[str]:
        reasons = why_no_gpu(device, place.nvml)
        if device.kind == "mig":
            reasons.append(
                f"{gpu_text(device)} is a MIG slice, and labkit's MPS daemon serves whole GPUs: use mode mig or naive"
            )
        elif clients > client_limit(device):
            reasons.append(
                f"{clients} jobs are more clients than MPS has on {device.name}, which are {client_limit(device)}: run "
                "fewer together"
            )
        if not sys.platform.startswith("linux"):
            reasons.append("CUDA MPS is for Linux only: use mode naive")
        elif not (mps := find_mps())["available"]:
            reasons.append(f"{mps['note']}: install it, or use mode naive")
        return reasons

    return place.refusals(jobs, against) or [
        (job.name, f"{job.name} asks for {limits}, which MPS gives from Volta on: {device.name} has {capability}")
        for job in jobs
        if (limits := _limits(job))
        and (device := place.device_of(job))
        and (capability := device.compute_capability)
        and _before_volta(device)
    ]


def shares(jobs: Sequence[PlannedJob], place: Place) -> dict[str, Share]:
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
        words = f"{_limits(job) or 'all'} of {gpu_text(device)} by MPS"
        found[job.name] = Share(words, visible(device) | bounds, torch_name="cuda:0")
    return found


def client_limit(device: Device) -> int:
    """How many processes can be clients of one daemon on a GPU."""
    if _before_volta(device):
        return CLIENTS_BEFORE_VOLTA
    major = (device.driver_version or "0").split(".")[0]
    return CLIENTS_OF_R590 if major.isdecimal() and int(major) >= R590 else CLIENTS


def _before_volta(device: Device) -> bool:
    capability = device.compute_capability
    return capability is not None and tuple(int(part) for part in capability.split(".")) < VOLTA


def _limits(job: PlannedJob) -> str:
    parts = [f"{job.gpu_percent:g} % of the multiprocessors"] if job.gpu_percent is not None else []
    parts += [f"{size_text(job.memory_bytes)} of the memory"] if job.memory_bytes is not None else []
    return " and ".join(parts)

"""A job's share of a device: on a CPU all of it, or cores and memory; on a GPU time slices, or what MPS gives."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from labkit import UserError, errors, hardware, launch

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
Refusal = tuple[str | None, str]
"""The job that cannot run so, or None where the mode itself cannot be had, and why."""


@dataclass(frozen=True)
class Share:
    """Part of a device that the process of one job is bound to."""

    device: str
    """The GPU, the slice, or the cores, for people"""
    environment: dict[str, str] = field(default_factory=dict)
    """Variables that bind it, such as CUDA_VISIBLE_DEVICES; an empty value removes a variable"""
    cores: tuple[int, ...] | None = None
    """CPU cores that it is bound to; None for all of them"""
    memory_bytes: int | None = None
    """Cap on its memory, or None"""
    torch_name: str = "cpu"
    """What torch calls the device in the job's process"""


@dataclass(frozen=True)
class Place:
    """Machine that every mode looks at."""

    device: hardware.Device
    """Device of the mix"""
    devices: Sequence[hardware.Device]
    """All devices, the CPU first"""
    nvml: hardware.Nvml
    """An open session"""
    needs: Mapping[str, int] = field(default_factory=dict)
    """Bytes that each job is estimated to take, by its name"""
    spin: bool = False
    """Whether idle CPU threads wait busily"""
    quiet: bool | None = None
    """Whether other programs leave the CPU alone; None looks"""

    def need(self, job: launch.PlannedJob) -> int | None:
        """Bytes of memory that count for a job: what was asked for, else the estimate; None where neither is known."""
        return job.memory_bytes or self.needs.get(job.name)

    def device_of(self, job: launch.PlannedJob) -> hardware.Device:
        """The device that a job asks for, else that of the mix; a UserError where there is no such device."""
        return self.device if job.device is None else hardware.find_device(job.device, self.devices)

    def refusals(
        self, jobs: Sequence[launch.PlannedJob], against: Callable[[hardware.Device, int], list[str]]
    ) -> list[Refusal]:
        """Jobs whose device there is not, and what is against each device, given how many of them it would have.

        Without jobs, the device of the mix is looked at.
        """
        count, refused = Counter(), []
        for job in jobs:
            try:
                count[self.device_of(job)] += 1
            except UserError as error:
                refused.append((job.name, str(error)))
        for device in count or [self.device]:
            refused += [(None, reason) for reason in against(device, count[device])]
        return refused


def free_bytes(where: str, nvml: hardware.Nvml) -> int | None:
    """Free memory of the CPU, "cpu", or of a GPU or slice, its UUID; None where it is not known."""
    if where == "cpu":
        return hardware.read_cpu().memory_available_bytes
    handle = nvml.read("nvmlDeviceGetHandleByUUID", where)
    memory = handle if handle.reason else nvml.read("nvmlDeviceGetMemoryInfo", handle.value)
    return None if memory.reason else memory.value.free


def leased_cpu(device: hardware.Device, **how: Any) -> contextlib.AbstractContextManager[list[int]]:
    """Holds all cores of this process while jobs share them, as `lease_cores` takes them; of a GPU's jobs, none."""
    return hardware.leased_cores(errors.certain(device.cores) if device.kind == "cpu" else 0, **how)


def cpu_environment(spin: bool) -> dict[str, str]:
    """Variables of every job on a CPU: it sees no GPU; unless they may spin, idle threads give up their core.

    OpenMP's threads wait busily for their next loop, which is best alone and ruinous together: on two cores, two
    DLRM jobs of two threads each reached 0.19 of one job's throughput together so, and 1.25 with PASSIVE (measured).
    """
    return {"CUDA_VISIBLE_DEVICES": "-1"} | ({} if spin else {"OMP_WAIT_POLICY": "PASSIVE"})


def cpu_share(device: hardware.Device, spin: bool) -> Share:
    """A share of all cores, which nothing binds."""
    cores = f"{device.cores} core{'s' * (device.cores != 1)}"
    waits = ", threads that wait busily" if spin else ""
    return Share(f"{device.name}, all {cores}{waits}", cpu_environment(spin))


def why_not_pinned(jobs: Sequence[launch.PlannedJob], place: Place) -> list[Refusal]:
    """Every reason why the CPU cannot be divided so."""
    if not hasattr(os, "sched_setaffinity"):
        return [(None, "this system has no CPU affinity, so no job can be kept on its cores: use cpu-shared")]
    cores, memory, refused = place.devices[0].cores, hardware.read_cpu().memory_available_bytes, []
    for wish, there, text, of, at_most in (
        ("cores", cores, str, "cores", f"this process may use {cores}"),
        ("memory_bytes", memory, hardware.size_text, "of memory", f"{hardware.size_text(memory)} are free"),
    ):
        asked = {job.name: getattr(job, wish) for job in jobs if getattr(job, wish) is not None}
        total = sum(asked.values())
        if total > there or (total == there and len(asked) < len(jobs)):
            each = ", ".join(f"{name} {text(n)}" for name, n in asked.items())
            left = "" if total > there else ", and the others need some as well"
            why = f"the jobs ask for {text(total)} {of} together ({each}): {at_most}{left}; ask for less"
            refused.append((None, why))
    return refused


def partitions(jobs: Sequence[launch.PlannedJob], place: Place) -> dict[str, Share]:
    """Cores and memory of its own for each job; where there are more jobs than cores, several jobs have one."""
    cpu = place.devices[0]
    dealt = deal_cores(jobs, hardware.own_cores()[: cpu.cores])
    left = hardware.read_cpu().memory_available_bytes - sum(job.memory_bytes or 0 for job in jobs)
    others = sum(job.memory_bytes is None for job in jobs)
    found = {}
    for job in jobs:
        cores = dealt[job.name]
        others_there = sum(1 for other in dealt.values() if set(other) & set(cores)) - 1
        part = f"{cpu.name}, core{'s' * (len(cores) > 1)} {', '.join(map(str, sorted(cores)))}"
        part += f" with {others_there} other job{'s' * (others_there > 1)}" if others_there else ""
        memory = job.memory_bytes or left // others
        variables = cpu_environment(place.spin) | dict.fromkeys(hardware.THREAD_VARIABLES, str(len(cores)))
        found[job.name] = Share(f"{part}, {hardware.size_text(memory)}", variables, tuple(sorted(cores)), memory)
    return found


def deal_cores(jobs: Sequence[launch.PlannedJob], order: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """Cores for each job: as many as it asks for, and an equal share of the others for those that ask for none.

    Hardware threads of one core go to one job as far as the numbers allow, because they share its caches. Where
    there are more jobs than cores left, the cores are dealt round robin. `order` is the logical CPUs, one of every
    physical core first.
    """
    asking = [(job, job.cores) for job in jobs if job.cores is not None]
    others = [job for job in jobs if job.cores is None]
    taken = order if others else order[: sum(cores for _, cores in asking)]
    free = sorted(taken, key=lambda cpu: (hardware.physical_core(cpu), cpu))
    dealt = {}
    for job, cores in asking:
        dealt[job.name], free = tuple(free[:cores]), free[cores:]
    for place, job in enumerate(others):
        begin, end = place * len(free) // len(others), (place + 1) * len(free) // len(others)
        dealt[job.name] = tuple(free[begin:end]) if len(others) <= len(free) else (free[place % len(free)],)
    return dealt


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
    is left as number 0. An empty value removes a limit of this process' own environment.
    """
    found = {}
    for job in jobs:
        device = place.device_of(job)
        percent = "" if job.gpu_percent is None else f"{job.gpu_percent:g}"
        limit = f"0={max(1, job.memory_bytes // 2**20)}MB" if job.memory_bytes else ""
        bounds = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": percent, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": limit}
        own = [f"{percent} % of the multiprocessors"] if percent else []
        own += [f"{hardware.size_text(job.memory_bytes)} of the memory"] if job.memory_bytes else []
        part = f"{' and '.join(own) or 'all'} of {gpu_text(device)} by MPS"
        found[job.name] = Share(part, _visible(device) | bounds, torch_name="cuda:0")
    return found


def _most_clients(device: hardware.Device) -> int:
    if float(device.compute_capability or 7) < 7:
        return CLIENTS_BEFORE_VOLTA
    return CLIENTS_OF_R590 if int((device.driver_version or "0").partition(".")[0]) >= R590 else CLIENTS


def gpu_text(device: hardware.Device) -> str:
    """Name of a GPU or slice for people."""
    return f"{device.name} {device.uuid}" if device.uuid else device.name


def gpu_share(device: hardware.Device, of_it: str = "") -> Share:
    """A share that binds a job to a GPU or slice, by its UUID and outside of every MPS; `of_it` is for people."""
    return Share(f"{of_it}{gpu_text(device)}", {**_visible(device), **NO_MPS}, torch_name="cuda:0")


def why_no_gpu(device: hardware.Device, nvml: hardware.Nvml, *, shared: bool = False) -> list[str]:
    """Every reason why no job, or no two at the same time, can run on a GPU or slice now; nothing for the CPU."""
    if device.kind == "cpu":
        return []
    if not is_reached(device):
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


def is_reached(device: hardware.Device) -> bool:
    """Whether a process that names a GPU or slice sees it, which one that does not name it may not."""
    is_undivided = device.uuid is not None and device.mig_mode != "on"
    return device.torch_name is not None or device.kind == "mig" or is_undivided


def why_occupied(device: hardware.Device, nvml: hardware.Nvml) -> str | None:
    """Why a GPU or slice is not free for measurements; None where it is, or where that is unknown.

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

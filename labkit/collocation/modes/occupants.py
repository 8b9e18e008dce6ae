"""Who uses a device already."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from labkit.hardware.device import Device
from labkit.hardware.nvml import Nvml
from labkit.hardware.sizes import size_text
from labkit.hardware.tools import find_mps

MPS_SERVER = "nvidia-cuda-mps-server"
LISTS = {
    "compute": "nvmlDeviceGetComputeRunningProcesses",
    "graphics": "nvmlDeviceGetGraphicsRunningProcesses",
}
LOOK_S = 0.5
"""How long CPU time is counted"""
BUSY = 0.1
"""Share of the cores from which other programs are worth a warning: below it they are lost in the noise of a run."""


@dataclass(frozen=True)
class Occupant:
    """A process that uses a GPU and is not ours."""

    pid: int
    kind: str
    """compute, or graphics for one that only draws"""
    name: str | None = None
    user: str | None = None
    """None where this process may not see it, as in a container"""
    memory_bytes: int | None = None

    def __str__(self) -> str:
        facts = [f"user {self.user}" if self.user else "its user cannot be seen from here"]
        facts += [size_text(self.memory_bytes)] if self.memory_bytes else []
        return f"process {self.pid}{f' {self.name}' if self.name else ''} ({', '.join(facts)})"


def occupants(device: Device, nvml: Nvml) -> tuple[list[Occupant], str | None]:
    """The processes on a GPU or slice other than this one and its children, and why they cannot be told, or None.

    Args:
        device: a GPU or a slice.
        nvml: an open session.
    """
    handle = nvml.read("nvmlDeviceGetHandleByUUID", device.uuid)
    if handle.reason is not None:
        return [], handle.reason
    ours = {os.getpid()} | {child.pid for child in psutil.Process().children(recursive=True)}
    found, why = {}, None
    for kind, call in LISTS.items():
        listed = nvml.read(call, handle.value)
        if kind == "compute":
            why = listed.reason  # many drivers and every slice draw nothing, and say so
        for process in listed.value or []:
            # what computes and draws is in both lists
            if process.pid not in ours and process.pid not in found:
                found[process.pid] = _occupant(kind, process.pid, process.usedGpuMemory, nvml)
    return list(found.values()), why


def why_occupied(device: Device, nvml: Nvml) -> str | None:
    """Why a GPU or slice is not free for measurements; None where it is, or where it cannot be told.

    What only draws, such as the desktop, is no reason; `warnings` names it.
    """
    computing = [each for each in occupants(device, nvml)[0] if each.kind == "compute"]
    if not computing:
        return None
    servers = [each for each in computing if (each.name or "").endswith(MPS_SERVER)]
    listed = ", ".join(str(each) for each in computing)
    if servers:
        return (
            f"{device.name} {device.uuid} is used by someone else: {listed}. An MPS daemon that labkit did not start "
            "serves it, and labkit neither uses nor stops what others started: wait for its owner, or choose another "
            "device"
        )
    return (
        f"{device.name} {device.uuid} is used by someone else: {listed}. Wait until it is free, end the process if it "
        "is yours, or choose another device"
    )


def warnings(device: Device, nvml: Nvml) -> list[str]:
    """What else runs on a device and may disturb what is measured, in sentences; takes half a second on a CPU."""
    if device.kind == "cpu":
        share = others_share()
        if share < BUSY:
            return []
        return [f"Other programs take {share:.0%} of this process' cores: close them, or expect noisy numbers."]
    found, why = occupants(device, nvml)
    drawing = [str(each) for each in found if each.kind == "graphics"]
    notes = [f"{device.name} also draws, for {', '.join(drawing)}: numbers may be noisy."] if drawing else []
    if why is not None:
        notes.append(f"Who else uses {device.name} cannot be told: {why}.")
    if find_mps()["daemon_seen"]:
        notes.append("An MPS daemon of someone else runs on this machine: no job will be its client.")
    return notes


def is_quiet() -> bool:
    """Whether other programs leave the CPU alone; takes half a second."""
    return others_share() < BUSY


def others_share(seconds: float = LOOK_S) -> float:
    """Share of the CPU time of this process' cores that other programs take, from 0 to 1."""
    before, own_before = _busy_and_all(), _own_s()
    time.sleep(seconds)
    after, own_after = _busy_and_all(), _own_s()
    whole = after[1] - before[1]
    if whole <= 0:
        return 0.0
    return min(1.0, max(0.0, (after[0] - before[0] - (own_after - own_before)) / whole))


def _busy_and_all() -> tuple[float, float]:
    """Busy and all CPU seconds so far, of the cores that this process may use."""
    cores = psutil.cpu_times(percpu=True)
    allowed: Sequence[int] = range(len(cores))
    if hasattr(os, "sched_getaffinity"):
        # a container may number its cores otherwise than the list does
        allowed = [core for core in sorted(os.sched_getaffinity(0)) if core < len(cores)] or allowed
    # guest time is in user time already
    sums = [
        sum(cores[core]) - getattr(cores[core], "guest", 0) - getattr(cores[core], "guest_nice", 0) for core in allowed
    ]
    idle = sum(cores[core].idle + getattr(cores[core], "iowait", 0) for core in allowed)
    return sum(sums) - idle, sum(sums)


def _own_s() -> float:
    total = 0.0
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.Error:  # it has just ended
            continue
        total += times.user + times.system
    return total


def _occupant(kind: str, pid: int, memory_bytes: int | None, nvml: Nvml) -> Occupant:
    try:
        process = psutil.Process(pid)
        name, user = process.name(), process.username()
    except psutil.Error:
        name = user = None
    # /proc cuts names to 15 characters
    told = nvml.read("nvmlSystemGetProcessName", pid).value
    return Occupant(pid, kind, Path(told.split()[0]).name if told and told.split() else name, user, memory_bytes)

"""Who uses a GPU already."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

import psutil

from labkit.hardware.device import Device
from labkit.hardware.nvml import Nvml
from labkit.hardware.sizes import size_text

MPS_SERVER = "nvidia-cuda-mps-server"
LISTS = {"compute": "nvmlDeviceGetComputeRunningProcesses", "graphics": "nvmlDeviceGetGraphicsRunningProcesses"}


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


def occupants(device: Device, nvml: Nvml, root: int | None = None) -> tuple[list[Occupant], str | None]:
    """The processes on a GPU or slice other than a process and its descendants, and why they cannot be told, or None.

    `nvml` is an open session; `root` is the process that is no other, this one if None.
    """
    handle = nvml.read("nvmlDeviceGetHandleByUUID", device.uuid)
    if handle.reason is not None:
        return [], handle.reason
    ours = {os.getpid(), root}
    with contextlib.suppress(psutil.NoSuchProcess):  # it has ended
        ours |= {child.pid for child in psutil.Process(root).children(recursive=True)}
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


def _occupant(kind: str, pid: int, memory_bytes: int | None, nvml: Nvml) -> Occupant:
    try:
        process = psutil.Process(pid)
        name, user = process.name(), process.username()
    except psutil.Error:
        name = user = None
    # /proc cuts names to 15 characters
    told = nvml.read("nvmlSystemGetProcessName", pid).value
    return Occupant(pid, kind, Path(told.split()[0]).name if told and told.split() else name, user, memory_bytes)

"""The only door to NVML, and the processes that already use a GPU."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import psutil
import pynvml

from labkit.hardware.cpu import size_text

if TYPE_CHECKING:
    from labkit.hardware.devices import Device

_REASONS = {
    pynvml.NVML_ERROR_NOT_SUPPORTED: "not supported on this GPU ({call})",
    pynvml.NVML_ERROR_NO_PERMISSION: "no permission ({call})",
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: "the driver is too old ({call})",
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "no NVIDIA driver is installed (NVML library not found)",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "the NVIDIA driver is installed but not loaded",
}
_LOST = {pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED, pynvml.NVML_ERROR_GPU_NOT_FOUND}


@dataclass(frozen=True)
class Answer:
    """The answer of one NVML call: a value, or None and the reason."""

    value: Any
    reason: str | None = None
    is_lost: bool = False
    """Whether the GPU itself was lost."""


class Nvml:
    """An NVML session, used as a context manager.

    `read` returns the reason for a failed call instead of raising, so a counter that a card lacks never hides the
    others.

    Attributes:
        available: whether the session is open.
        reason: why opening it failed, else None.
    """

    def __init__(self, library: ModuleType = pynvml):
        self._library = library
        self.available, self.reason = False, None

    def __enter__(self) -> Nvml:
        self.reason = self.read("nvmlInit").reason
        self.available = self.reason is None
        return self

    def __exit__(self, *error) -> None:
        if self.available:
            self.read("nvmlShutdown")
        self.available = False

    def read(self, call: str, *args) -> Answer:
        """Call NVML by the function's name, for example `read("nvmlDeviceGetName", handle)`."""
        try:
            return Answer(getattr(self._library, call)(*args))
        except pynvml.NVMLError as error:
            code = getattr(error, "value", None)
            reason = _REASONS.get(code, "{error} ({call})").format(error=error, call=call)
            return Answer(None, reason, code in _LOST)


MPS_SERVER = "nvidia-cuda-mps-server"
LISTS = {"compute": "nvmlDeviceGetComputeRunningProcesses", "graphics": "nvmlDeviceGetGraphicsRunningProcesses"}


@dataclass(frozen=True)
class Occupant:
    """A process that uses a GPU and does not belong to this run."""

    pid: int
    kind: str
    """compute, or graphics for a process that only draws."""
    name: str | None = None
    user: str | None = None
    """None where this process may not see it, as in a container."""
    memory_bytes: int | None = None

    def __str__(self) -> str:
        facts = [f"user {self.user}" if self.user else "its user cannot be seen from here"]
        facts += [size_text(self.memory_bytes)] if self.memory_bytes else []
        return f"process {self.pid}{f' {self.name}' if self.name else ''} ({', '.join(facts)})"


def occupants(device: Device, nvml: Nvml, root: int | None = None) -> tuple[list[Occupant], str | None]:
    """Other processes on a GPU or slice, and the reason where the driver does not list them (else None).

    `nvml` is an open session. `root` is the process that does not count, with its descendants; None is this process.
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
            why = listed.reason  # many drivers, and all slices, refuse the list of graphics processes
        for process in listed.value or []:
            # a process that computes and draws is in both lists
            if process.pid not in ours and process.pid not in found:
                found[process.pid] = _occupant(kind, process.pid, process.usedGpuMemory, nvml)
    return list(found.values()), why


def _occupant(kind: str, pid: int, memory_bytes: int | None, nvml: Nvml) -> Occupant:
    try:
        process = psutil.Process(pid)
        name, user = process.name(), process.username()
    except psutil.Error:
        name = user = None
    # the driver's name is whole; /proc cuts names to 15 characters
    words = (nvml.read("nvmlSystemGetProcessName", pid).value or "").split()
    return Occupant(pid, kind, Path(words[0]).name if words else name, user, memory_bytes)

"""What this process may compute on: the CPU, and the GPUs or MIG slices that CUDA can see. The only door to NVML."""

import contextlib
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pynvml

from labkit import UserError
from labkit.hardware.cpu import read_cpu, size_text

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

    def __enter__(self) -> "Nvml":
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

    def value(self, call: str, *args) -> Any:
        """The value of a call. Raises LookupError, with the reason, if it fails."""
        answer = self.read(call, *args)
        if answer.reason is not None:
            raise LookupError(answer.reason)
        return answer.value


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


def occupants(device: "Device", nvml: Nvml, root: int | None = None) -> tuple[list[Occupant], str | None]:
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


@dataclass(frozen=True)
class Device:
    """Something that can run a job. A field is None where it does not apply or could not be read."""

    kind: str
    """cpu, gpu or mig"""
    index: int
    """Number of the GPU in PCI order (of the parent GPU for a MIG slice); 0 for the CPU."""
    name: str
    torch_name: str | None = None
    """torch's name for it in this process, or None where CUDA cannot reach it."""
    uuid: str | None = None
    memory_bytes: int | None = None
    cores: int | None = None
    """CPU cores this process may use"""
    machine_cores: int | None = None
    """CPU cores of the machine or container; this process may be bound to fewer."""
    sm_count: int | None = None
    compute_capability: str | None = None
    power_limit_w: float | None = None
    driver_version: str | None = None
    mig_mode: str | None = None
    """on or off"""
    mig_parent_uuid: str | None = None
    mig_profile: str | None = None
    """for example 1g.10gb"""
    missing: dict[str, str] = field(default_factory=dict, compare=False, hash=False)
    """Reasons why fields are None, by field."""

    @property
    def gpu_uuid(self) -> str | None:
        """UUID of the physical GPU."""
        return self.mig_parent_uuid or self.uuid


CORES_PER_SM = {"5": 128, "6.0": 64, "6": 128, "7": 64, "8.0": 64, "8": 128, "9": 128, "10": 128, "12": 128}
"""FP32 cores of a multiprocessor, by compute capability or its major number.

Source: CUDA C++ Programming Guide, "Compute Capabilities", throughput of 32-bit floating-point add.
"""
JETSON = "jetson"
"""Stands for the UUID of a Jetson module's GPU, which has no UUID in the kernel's files."""
JETSON_LOADS = ("sys/devices/gpu.0/load", "sys/devices/platform/gpu.0/load", "sys/devices/platform/*.gpu/load")
"""Files with that GPU's load, by generation of the module. Source: Jetson Linux Developer Guide."""


def get_devices(nvml: Nvml | None = None) -> list[Device]:
    """Return what this process may compute on: the CPU first, then visible GPUs or MIG slices.

    Honours CUDA_VISIBLE_DEVICES as numbers, UUIDs, UUID prefixes and MIG UUIDs. Never imports torch. `nvml` is a
    session that is not open yet; the default is the driver of this machine.
    """
    with nvml or Nvml() as session:
        count = (session.available and session.read("nvmlDeviceGetCount").value) or 0
        found = [each for index in range(count) for each in _read_gpu(session, index)]
    cpu = cpu_device()
    if not found and is_jetson():
        why = "NVML does not show the GPU of this Jetson"
        missing = dict.fromkeys(("sm_count", "compute_capability", "power_limit_w", "driver_version"), why)
        found = [Device("gpu", 0, f"{cpu.name} GPU", uuid=JETSON, memory_bytes=cpu.memory_bytes, missing=missing)]
    return [cpu, *visible_devices(found, os.environ.get("CUDA_VISIBLE_DEVICES"))]


def cpu_device() -> Device:
    """Return this machine's CPU, named after its board where that is known (Raspberry Pi, Jetson)."""
    cpu = read_cpu()
    has = Device("cpu", 0, cpu.board or cpu.model, torch_name="cpu", memory_bytes=cpu.memory_bytes)
    return replace(has, cores=cpu.available_cores, machine_cores=cpu.machine_cores)


def is_jetson(root: Path = Path("/")) -> bool:
    """Whether this machine is an NVIDIA Jetson module, whose CPU and GPU share one memory."""
    return (root / "etc/nv_tegra_release").exists() or any(root.glob(JETSON_LOADS[-1]))


_OF_BOTH: dict[str, tuple[str, Callable]] = {
    "name": ("nvmlDeviceGetName", str),
    "uuid": ("nvmlDeviceGetUUID", str),
    "memory_bytes": ("nvmlDeviceGetMemoryInfo", lambda memory: memory.total),
}
_OF_A_GPU = _OF_BOTH | {
    "compute_capability": ("nvmlDeviceGetCudaComputeCapability", lambda pair: f"{pair[0]}.{pair[1]}"),
    "power_limit_w": ("nvmlDeviceGetPowerManagementLimit", lambda milliwatts: milliwatts / 1000),
    "driver_version": ("nvmlSystemGetDriverVersion", str),
    "mig_mode": ("nvmlDeviceGetMigMode", lambda modes: "on" if modes[0] else "off"),
    "sm_count": ("nvmlDeviceGetNumGpuCores", int),  # NVML knows a whole GPU's cores, not its multiprocessors
}
_OF_A_SLICE = _OF_BOTH | {"sm_count": ("nvmlDeviceGetAttributes", lambda answer: answer.multiprocessorCount)}
"""NVML's call, and the conversion of its answer, by field of a device."""


def _fields(nvml: Nvml, handle: Any, calls: dict[str, tuple[str, Callable]]) -> tuple[dict[str, Any], dict[str, str]]:
    """The fields that could be read, and the reasons for those that could not."""
    values, missing = {}, {}
    for name, (call, convert) in calls.items():
        reading = nvml.read(call, *(() if call.startswith("nvmlSystem") else (handle,)))
        if reading.reason is None:
            values[name] = convert(reading.value)
        else:
            missing[name] = reading.reason
    return {"name": "unnamed GPU"} | values, missing


def _read_gpu(nvml: Nvml, index: int) -> list[Device]:
    """The GPU, or its MIG slices."""
    answer = nvml.read("nvmlDeviceGetHandleByIndex", index)
    if answer.reason is not None:
        return [Device("gpu", index, "unreadable GPU", missing={"torch_name": answer.reason})]
    handle = answer.value
    values, missing = _fields(nvml, handle, _OF_A_GPU)
    cores, capability = values.pop("sm_count", None), values.get("compute_capability", "?")
    per_sm = CORES_PER_SM.get(capability) or CORES_PER_SM.get(capability.split(".")[0])
    if cores is not None and per_sm is not None:
        values["sm_count"] = cores // per_sm
    elif cores is not None:
        missing["sm_count"] = f"cores per multiprocessor of compute capability {capability} are not known"
    gpu = Device("gpu", index, missing=missing, **values)
    if gpu.mig_mode == "on":
        if slices := _read_slices(nvml, handle, gpu):
            return slices
        missing["torch_name"] = "MIG is on but this GPU has no MIG slice, so nothing can run on it"
    return [gpu]


def _read_slices(nvml: Nvml, handle: Any, parent: Device) -> list[Device]:
    slices = []
    for place in range(nvml.read("nvmlDeviceGetMaxMigDeviceCount", handle).value or 0):
        mig = nvml.read("nvmlDeviceGetMigDeviceHandleByIndex", handle, place)
        if mig.reason is not None:
            continue  # an empty place: NVML numbers places, not slices
        values, missing = _fields(nvml, mig.value, _OF_A_SLICE)
        profile = re.search(r"\d+(c\.\d+)?g\.\d+gb\S*", values["name"])
        if profile is None:
            missing["mig_profile"] = f"the slice's name does not contain it: {values['name']}"
        missing["power_limit_w"] = "a MIG slice has no power limit of its own"
        of_parent = {name: getattr(parent, name) for name in ("compute_capability", "driver_version", "mig_mode")}
        values |= of_parent | {"mig_parent_uuid": parent.uuid, "mig_profile": profile and profile.group()}
        slices.append(Device("mig", parent.index, missing=missing, **values))
    return slices


def find_device(name: str | None, devices: Sequence[Device]) -> Device:
    """The device of that name.

    Args:
        name: cpu; a GPU's number in PCI order, as nvidia-smi counts; a UUID or its beginning; torch's name. None takes
            the first GPU or slice that CUDA can use, else the CPU. A GPU with MIG slices stands for its first slice, as
            in CUDA.
        devices: the devices to choose from, the CPU first, as `get_devices` returns them.

    Raises:
        UserError: no device, or more than one, has that name; the text lists them.
    """
    cpu, gpus = devices[0], devices[1:]
    if name is None:
        return next((device for device in gpus if device.torch_name), cpu)
    if name == "cpu":
        return cpu
    found = [device for device in gpus if device.torch_name == name] or _named(gpus, name)
    if _is_one_gpu(found, name):
        return found[0]
    what = f"several devices start with {name!r}" if found else f"this machine has no device {name!r}"
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    narrowed = "" if hidden is None else f" (CUDA_VISIBLE_DEVICES={hidden} may hide some)"
    there = [f"{gpu.uuid if gpu.kind == 'mig' else gpu.index} ({gpu.name}, {gpu.uuid})" for gpu in gpus]
    raise UserError(f"{what}{narrowed}: choose one of {'; '.join([f'cpu ({cpu.name})', *there])}.")


def visible_devices(devices: Sequence[Device], setting: str | None) -> list[Device]:
    """Return the devices a process may use, in CUDA's order and with their torch names.

    `setting` is the value of CUDA_VISIBLE_DEVICES: None (unset) means all, empty means none. Like CUDA, this reads the
    list up to its first invalid entry: an unknown or ambiguous name, a number out of range, a repeated device. Numbers
    count GPUs in PCI order, as in `devices`, where a slice stands for its GPU.

    Source: CUDA C++ Programming Guide, "CUDA Environment Variables"; NVIDIA MIG User Guide, "CUDA Device
    Enumeration" (one compute instance per process, and no whole GPU with it).
    """
    if setting is None:
        return _name_for_torch(devices)
    chosen: list[Device] = []
    for entry in setting.split(","):
        entry = entry.strip()
        found = _named(devices, entry)
        if not _is_one_gpu(found, entry) or any(device in chosen for device in found):
            break
        chosen += found
    return _name_for_torch(chosen)


def _named(devices: Sequence[Device], name: str) -> list[Device]:
    """The devices with this number, this UUID, or a UUID that begins so."""
    if name.isdecimal():
        return [device for device in devices if device.index == int(name)]
    field = {"GPU-": "gpu_uuid", "MIG-": "uuid"}.get(name[:4])
    return [device for device in devices if field and (getattr(device, field) or "").startswith(name)]


def _is_one_gpu(found: Sequence[Device], name: str) -> bool:
    """Whether the devices of that name are one GPU, whole or as its slices, or one slice."""
    return len({device.uuid if name.startswith("MIG-") else device.gpu_uuid for device in found}) == 1


def _name_for_torch(devices: Sequence[Device]) -> list[Device]:
    first_slice = next((device for device in devices if device.kind == "mig"), None)
    named, number = [], 0
    for device in devices:
        if device is first_slice or (first_slice is None and "torch_name" not in device.missing):
            device, number = replace(device, torch_name=f"cuda:{number}"), number + 1
        elif first_slice is not None:
            only = "one MIG slice per process" if device.kind == "mig" else "no whole GPU together with a MIG slice"
            why = f"CUDA uses {only}: set CUDA_VISIBLE_DEVICES={device.uuid} to use this one"
            device = replace(device, missing=device.missing | {"torch_name": why})
        named.append(device)
    return named

"""What this process may compute on: the CPU, and the GPUs or MIG slices that CUDA can see."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

from labkit.hardware.cpu import read_cpu
from labkit.hardware.device import Device
from labkit.hardware.jetson import is_jetson, jetson_gpu
from labkit.hardware.nvml import Nvml
from labkit.hardware.visibility import visible_devices

__all__ = ["Device", "cpu_device", "get_devices"]

CORES_PER_SM = {"5": 128, "6.0": 64, "6": 128, "7": 64, "8.0": 64, "8": 128, "9": 128, "10": 128, "12": 128}
"""FP32 cores of a multiprocessor, by compute capability or its major number.

Source: CUDA C++ Programming Guide, "Compute Capabilities", throughput of 32-bit floating-point add.
"""


def get_devices(nvml: Nvml | None = None) -> list[Device]:
    """Return what this process may compute on: the CPU first, then visible GPUs or MIG slices.

    Honours CUDA_VISIBLE_DEVICES as numbers, UUIDs, UUID prefixes and MIG UUIDs. Never imports torch.

    Args:
        nvml: a session that is not yet open; the default talks to the driver of this machine.
    """
    with nvml or Nvml() as session:
        found = _read_gpus(session) if session.available else []
    cpu = cpu_device()
    if not found and is_jetson():
        found = [jetson_gpu(cpu)]
    return [cpu, *visible_devices(found, os.environ.get("CUDA_VISIBLE_DEVICES"))]


def cpu_device() -> Device:
    """Return this machine's CPU; a known board (Raspberry Pi, Jetson) goes by the board's name."""
    cpu = read_cpu()
    return Device(
        kind="cpu",
        index=0,
        name=cpu.board or cpu.model,
        torch_name="cpu",
        memory_bytes=cpu.memory_bytes,
        cores=cpu.available_cores,
        machine_cores=cpu.machine_cores,
    )


class _Fields:
    """Collects the values of one device, and the reasons for those that could not be read."""

    def __init__(self, nvml: Nvml):
        self.nvml = nvml
        self.values: dict[str, Any] = {}
        self.missing: dict[str, str] = {}

    def read(self, name: str, call: str, *args, convert: Callable[[Any], Any] = lambda value: value) -> None:
        reading = self.nvml.read(call, *args)
        if reading.reason is None:
            self.values[name] = convert(reading.value)
        else:
            self.missing[name] = reading.reason


def _read_gpus(nvml: Nvml) -> list[Device]:
    devices = []
    for index in range(nvml.read("nvmlDeviceGetCount").value or 0):
        handle = nvml.read("nvmlDeviceGetHandleByIndex", index)
        if handle.reason is not None:
            lost = {"torch_name": handle.reason}
            devices.append(Device(kind="gpu", index=index, name="unreadable GPU", missing=lost))
            continue
        devices += _read_gpu(nvml, index, handle.value)
    return devices


def _read_gpu(nvml: Nvml, index: int, handle: Any) -> list[Device]:
    fields = _Fields(nvml)
    fields.read("name", "nvmlDeviceGetName", handle)
    fields.read("uuid", "nvmlDeviceGetUUID", handle)
    fields.read("memory_bytes", "nvmlDeviceGetMemoryInfo", handle, convert=lambda memory: memory.total)
    fields.read(
        "compute_capability",
        "nvmlDeviceGetCudaComputeCapability",
        handle,
        convert=lambda pair: f"{pair[0]}.{pair[1]}",
    )
    fields.read("power_limit_w", "nvmlDeviceGetPowerManagementLimit", handle, convert=lambda mw: mw / 1000)
    fields.read("driver_version", "nvmlSystemGetDriverVersion")
    fields.read("mig_mode", "nvmlDeviceGetMigMode", handle, convert=lambda modes: "on" if modes[0] else "off")
    _read_sm_count(fields, handle)
    values = {"name": "unnamed GPU"} | fields.values
    if values.get("mig_mode") != "on":
        return [Device(kind="gpu", index=index, missing=fields.missing, **values)]
    slices = _read_slices(nvml, index, handle, values)
    if not slices:
        fields.missing["torch_name"] = "MIG is on but this GPU has no MIG slice, so nothing can run on it"
        return [Device(kind="gpu", index=index, missing=fields.missing, **values)]
    return slices


def _read_sm_count(fields: _Fields, handle: Any) -> None:
    # NVML knows a whole GPU's cores, not its multiprocessors.
    fields.read("sm_count", "nvmlDeviceGetNumGpuCores", handle)
    cores, capability = fields.values.pop("sm_count", None), fields.values.get("compute_capability")
    if cores is None:
        return
    if capability is None:
        fields.missing["sm_count"] = f"needs the compute capability: {fields.missing['compute_capability']}"
        return
    per_sm = CORES_PER_SM.get(capability) or CORES_PER_SM.get(capability.split(".")[0])
    if per_sm is None:
        fields.missing["sm_count"] = f"cores per multiprocessor of compute capability {capability} are not known"
        return
    fields.values["sm_count"] = cores // per_sm


def _read_slices(nvml: Nvml, index: int, handle: Any, parent: dict[str, Any]) -> list[Device]:
    slices = []
    for place in range(nvml.read("nvmlDeviceGetMaxMigDeviceCount", handle).value or 0):
        mig = nvml.read("nvmlDeviceGetMigDeviceHandleByIndex", handle, place)
        if mig.reason is not None:
            continue  # an empty place: NVML numbers places, not slices
        fields = _Fields(nvml)
        fields.read("name", "nvmlDeviceGetName", mig.value)
        fields.read("uuid", "nvmlDeviceGetUUID", mig.value)
        fields.read("memory_bytes", "nvmlDeviceGetMemoryInfo", mig.value, convert=lambda memory: memory.total)
        fields.read(
            "sm_count",
            "nvmlDeviceGetAttributes",
            mig.value,
            convert=lambda attributes: attributes.multiprocessorCount,
        )
        values = {"name": parent["name"]} | fields.values
        profile = re.search(r"\d+(c\.\d+)?g\.\d+gb\S*", values["name"])
        if profile is None:
            fields.missing["mig_profile"] = f"the slice's name does not say it: {values['name']}"
        slices.append(
            Device(
                kind="mig",
                index=index,
                compute_capability=parent.get("compute_capability"),
                driver_version=parent.get("driver_version"),
                mig_mode="on",
                mig_parent_uuid=parent.get("uuid"),
                mig_profile=profile and profile.group(),
                missing=fields.missing | {"power_limit_w": "a MIG slice has no power limit of its own"},
                **values,
            )
        )
    return slices

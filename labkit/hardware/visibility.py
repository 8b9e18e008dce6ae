"""Which GPUs and MIG slices a CUDA process may use, as CUDA reads CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from labkit.hardware.device import Device

MIG_OUT_OF_REACH = "CUDA uses one MIG slice a process: set CUDA_VISIBLE_DEVICES={uuid} to use this one"
GPU_BEHIND_MIG = "CUDA uses no whole GPU beside a MIG slice: set CUDA_VISIBLE_DEVICES={uuid} to use this one"


def visible_devices(devices: Sequence[Device], setting: str | None) -> list[Device]:
    """Return the devices a process may use, in CUDA's order and with their torch names.

    As CUDA does, the list is read up to its first invalid entry: an unknown or ambiguous name, a number out
    of range, a repeated device. Unset means all, empty means none. Numbers count GPUs in PCI order.

    Args:
        devices: GPUs and MIG slices in NVML's order; a slice stands where its GPU would.
        setting: the value of CUDA_VISIBLE_DEVICES, or None where it is unset.

    Source: CUDA C++ Programming Guide, "CUDA Environment Variables"; NVIDIA MIG User Guide, "CUDA Device
    Enumeration" (one compute instance a process, and no whole GPU beside it).
    """
    chosen = list(devices) if setting is None else _choose(devices, setting)
    return _name_for_torch(chosen)


def _choose(devices: Sequence[Device], setting: str) -> list[Device]:
    chosen: list[Device] = []
    for entry in setting.split(","):
        found = _find(devices, entry.strip())
        if not found or any(device in chosen for device in found):
            break
        chosen += found
    return chosen


def _find(devices: Sequence[Device], entry: str) -> list[Device]:
    if entry.isdecimal():
        return [device for device in devices if device.index == int(entry)]
    if entry.startswith(("GPU-", "MIG-")):
        field = "uuid" if entry.startswith("MIG-") else "gpu_uuid"
        found = [device for device in devices if (getattr(device, field) or "").startswith(entry)]
        return found if len({getattr(device, field) for device in found}) == 1 else []
    return []


def _name_for_torch(devices: list[Device]) -> list[Device]:
    first_slice = next((device for device in devices if device.kind == "mig"), None)
    named, number = [], 0
    for device in devices:
        if first_slice is None and "torch_name" not in device.missing:
            device, number = replace(device, torch_name=f"cuda:{number}"), number + 1
        elif device is first_slice:
            device = replace(device, torch_name="cuda:0")
        elif first_slice is not None:
            why = MIG_OUT_OF_REACH if device.kind == "mig" else GPU_BEHIND_MIG
            device = replace(device, missing=device.missing | {"torch_name": why.format(uuid=device.uuid)})
        named.append(device)
    return named

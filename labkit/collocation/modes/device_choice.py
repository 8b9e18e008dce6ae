"""Which device a name means."""

from __future__ import annotations

import os
from collections.abc import Sequence

from labkit.errors import UserError
from labkit.hardware.device import Device


def find_device(name: str | None, devices: Sequence[Device]) -> Device:
    """The device of that name.

    Args:
        name: cpu; a GPU's number in PCI order, as nvidia-smi counts; a slice's as GPU:SLICE, such as 0:1; a UUID or
            how it begins; torch's name. None takes the first GPU or slice that CUDA reaches, else the CPU. A GPU that
            is cut into slices stands for its first, as CUDA has it.
        devices: what there is, the CPU first, as `labkit.hardware.devices.get_devices` returns it.

    Raises:
        UserError: there is none, or several begin so; with what there is.
    """
    cpu, gpus = devices[0], devices[1:]
    if name is None:
        return next((device for device in gpus if device.torch_name), cpu)
    if name == "cpu":
        return cpu
    found = _named(name, gpus)
    places = {device.gpu_uuid if name.isdecimal() or name.startswith("GPU-") else device.uuid for device in found}
    if not found or len(places) > 1:
        what = f"several devices begin with {name!r}" if found else f"there is no device {name!r} here"
        hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
        narrowed = "" if hidden is None else f" (CUDA_VISIBLE_DEVICES={hidden} may hide some)"
        raise UserError(f"{what}{narrowed}: choose one of {'; '.join(device_names(devices))}.")
    return found[0]


def device_names(devices: Sequence[Device]) -> list[str]:
    """Each device as a name that `find_device` takes, and what it is.

    >>> device_names([Device("cpu", 0, "a CPU"), Device("gpu", 0, "Tesla T4", uuid="GPU-11")])
    ['cpu (a CPU)', '0 (Tesla T4, GPU-11)']
    """
    return [
        f"{_short_name(device, devices)} ({', '.join(filter(None, (device.name, device.uuid)))})" for device in devices
    ]


def _named(name: str, gpus: Sequence[Device]) -> list[Device]:
    if name.startswith(("GPU-", "MIG-")):
        uuids = {device: device.gpu_uuid if name.startswith("GPU-") else device.uuid for device in gpus}
        return [device for device, uuid in uuids.items() if (uuid or "").startswith(name)]
    return [device for device in gpus if name in (str(device.index), device.torch_name, _short_name(device, gpus))]


def _short_name(device: Device, devices: Sequence[Device]) -> str:
    if device.kind == "cpu":
        return "cpu"
    if device.kind == "gpu":
        return str(device.index)
    siblings = [other for other in devices if other.kind == "mig" and other.index == device.index]
    return f"{device.index}:{siblings.index(device)}"

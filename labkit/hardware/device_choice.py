"""Which device a name means."""

from __future__ import annotations

import os
from collections.abc import Sequence

from labkit.errors import UserError
from labkit.hardware.device import Device


def find_device(name: str | None, devices: Sequence[Device]) -> Device:
    """The device of that name.

    Args:
        name: cpu; a GPU's number in PCI order, as nvidia-smi counts; a UUID or how it begins; torch's name. None takes
            the first GPU or slice that CUDA reaches, else the CPU. A GPU that is cut into slices stands for its first,
            as CUDA has it.
        devices: what there is, the CPU first, as `labkit.hardware.devices.get_devices` returns it.

    Raises:
        UserError: there is none, or several begin so; with what there is.
    """
    cpu, gpus = devices[0], devices[1:]
    if name is None:
        return next((device for device in gpus if device.torch_name), cpu)
    if name == "cpu":
        return cpu
    found = [device for device in gpus if name in (str(device.index), device.torch_name)]
    if name.startswith(("GPU-", "MIG-")):
        found = [gpu for gpu in gpus if any(uuid and uuid.startswith(name) for uuid in (gpu.uuid, gpu.gpu_uuid))]
    places = {device.uuid if name.startswith(("cuda", "MIG-")) else device.gpu_uuid for device in found}
    if len(places) == 1:
        return found[0]
    what = f"several devices begin with {name!r}" if found else f"there is no device {name!r} here"
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    narrowed = "" if hidden is None else f" (CUDA_VISIBLE_DEVICES={hidden} may hide some)"
    there = [f"{gpu.uuid if gpu.kind == 'mig' else gpu.index} ({gpu.name}, {gpu.uuid})" for gpu in gpus]
    raise UserError(f"{what}{narrowed}: choose one of {'; '.join([f'cpu ({cpu.name})', *there])}.")

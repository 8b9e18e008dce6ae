"""Whether a device is free for measurements."""

from __future__ import annotations

from labkit.hardware.device import Device
from labkit.hardware.nvml import Nvml
from labkit.hardware.occupants import MPS_SERVER, occupants
from labkit.hardware.tools import find_mps
from labkit.telemetry.others import in_words, others_now


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
    """What else runs on a device and may disturb what is measured, in sentences; takes a moment on a CPU."""
    if device.kind == "cpu":
        found = in_words(others_now().to_dict())
        return [f"In the last moment {found}: close what you can, or expect noisy numbers."] if found else []
    found, why = occupants(device, nvml)
    drawing = [str(each) for each in found if each.kind == "graphics"]
    notes = [f"{device.name} also draws, for {', '.join(drawing)}: numbers may be noisy."] if drawing else []
    if why is not None:
        notes.append(f"Who else uses {device.name} cannot be told: {why}.")
    if find_mps()["daemon_seen"]:
        notes.append("An MPS daemon of someone else runs on this machine: no job will be its client.")
    return notes

"""NVIDIA Jetson modules: a CPU and a GPU on one memory, whose GPU NVML does not show or tells little of."""

from __future__ import annotations

from pathlib import Path

from labkit.hardware.device import Device

JETSON = "jetson"
"""Stands for the UUID of a Jetson's GPU, of which there is one and which has none that files tell."""
LOADS = ("sys/devices/gpu.0/load", "sys/devices/platform/gpu.0/load", "sys/devices/platform/*.gpu/load")
"""Where the load of the GPU stands, by the age of the module. Source: Jetson Linux Developer Guide."""


def is_jetson(root: Path = Path("/")) -> bool:
    """Whether this machine is a Jetson."""
    return (root / "etc/nv_tegra_release").exists() or any(root.glob(LOADS[-1]))


def jetson_gpu(cpu: Device) -> Device:
    """The GPU of the Jetson whose CPU this is."""
    why = "NVML does not show the GPU of this Jetson"
    return Device(
        kind="gpu",
        index=0,
        name=f"{cpu.name} GPU",
        uuid=JETSON,
        memory_bytes=cpu.memory_bytes,
        missing=dict.fromkeys(("sm_count", "compute_capability", "power_limit_w", "driver_version"), why),
    )

"""Counters of other trackers as labkit's: by scope, name and unit, and no number for a missing value."""

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass

RADT = {
    "system/SMI - ": (-1.0, "radT writes -1 where nvidia-smi gives no value"),
    "system/DCGMI - ": (0.0, "0 at every sample: radT writes 0 where DCGM gives no value"),
}
"""The number that radT writes for a value that it does not have, by the beginning of the counter's name, and a note"""


@dataclass(frozen=True)
class Known:
    """What a tracker's counter is in labkit's words."""

    device: str
    scope: str
    name: str
    unit: str
    factor: float = 1.0
    missing: tuple[float, str] | None = None
    """Number that stands for a missing value (-1 at any sample, 0 only if it is there at every sample), and a note"""

    def values(self, logged: Sequence[float]) -> tuple[list[float | None], list[str | None]]:
        """The values in labkit's unit, and a note where one is missing."""
        is_missing, why = [value != value for value in logged], "it was logged as not a number"
        if self.missing is not None and (self.missing[0] == -1 or not any(logged)):
            number, why = self.missing
            is_missing = [gone or value == number for gone, value in zip(is_missing, logged, strict=True)]
        values = [None if gone else value * self.factor for gone, value in zip(is_missing, logged, strict=True)]
        return values, [why if gone else None for gone in is_missing]


MIB, GIB = 2.0**20, 2.0**30
# of MLflow 3.17, W&B 0.31, Trackio 0.43 and radT 0.2.30; a group is the number of a GPU
RULES: list[tuple[str, str, str, str, float]] = [
    (r"system/gpu_(\d+)_power_usage_watts", "device", "power", "W", 1),
    (r"system/gpu_(\d+)_utilization_percentage", "device", "gpu_utilisation", "%", 1),
    (r"system/gpu_(\d+)_memory_usage_megabytes", "device", "memory_used", "bytes", 1e6),
    (r"system/cpu_utilization_percentage", "host", "cpu_percent", "%", 1),
    (r"system/system_memory_usage_megabytes", "host", "memory_used", "bytes", 1e6),
    (r"gpu\.(\d+)\.powerWatts", "device", "power", "W", 1),
    (r"gpu\.(\d+)\.gpu", "device", "gpu_utilisation", "%", 1),
    (r"gpu\.(\d+)\.memory", "device", "memory_utilisation", "%", 1),
    (r"gpu\.(\d+)\.memoryAllocatedBytes", "device", "memory_used", "bytes", 1),
    (r"gpu\.(\d+)\.temp", "device", "temperature", "°C", 1),
    (r"gpu\.(\d+)\.smClock", "device", "sm_clock", "MHz", 1),
    (r"gpu\.(\d+)\.smActive", "device", "sm_active", "%", 1),
    (r"gpu\.(\d+)\.smOccupancy", "device", "sm_occupancy", "%", 1),
    (r"gpu\.(\d+)\.pipeTensorActive", "device", "tensor_active", "%", 1),
    (r"gpu\.(\d+)\.dramActive", "device", "dram_active", "%", 1),
    (r"proc\.memory\.rssMB", "process", "memory_resident", "bytes", MIB),
    (r"gpu/(\d+)/power", "device", "power", "W", 1),
    (r"gpu/(\d+)/energy_consumed", "device", "energy", "J", 1),
    (r"gpu/(\d+)/utilization", "device", "gpu_utilisation", "%", 1),
    (r"gpu/(\d+)/memory_utilization", "device", "memory_utilisation", "%", 1),
    (r"gpu/(\d+)/allocated_memory", "device", "memory_used", "bytes", GIB),
    (r"gpu/(\d+)/temp", "device", "temperature", "°C", 1),
    (r"gpu/(\d+)/sm_clock", "device", "sm_clock", "MHz", 1),
    (r"cpu/utilization", "host", "cpu_percent", "%", 1),
    (r"memory/used", "host", "memory_used", "bytes", GIB),
    (r"system/SMI - Power Draw", "device", "power", "W", 1),
    (r"system/SMI - GPU Util", "device", "gpu_utilisation", "%", 100),
    (r"system/SMI - Mem Util", "device", "memory_utilisation", "%", 100),
    (r"system/SMI - Mem Used", "device", "memory_used", "bytes", MIB),
    (r"system/DCGMI - Power Usage", "device", "power", "W", 1),
    (r"system/DCGMI - Total Energy Consumption", "device", "energy", "J", 1e-3),
    (r"system/DCGMI - GPU Utilization", "device", "gpu_utilisation", "%", 1),
    (r"system/DCGMI - GR Engine Active", "device", "graphics_active", "%", 100),
    (r"system/DCGMI - SM Active", "device", "sm_active", "%", 100),
    (r"system/DCGMI - SM Occupancy", "device", "sm_occupancy", "%", 100),
    (r"system/DCGMI - Tensor Active", "device", "tensor_active", "%", 100),
    (r"system/DCGMI - DRAM Active", "device", "dram_active", "%", 100),
]
OURS = re.compile(r"system/(host|process|device|mig)/([^/]+)/([^/]+?)(?: \(([^()]*)\))?")
"""A counter that labkit exported"""


@functools.lru_cache(10_000)
def reading_of(name: str) -> Known:
    """What a tracker's counter is; one that labkit has no word for keeps its name, as one of the host."""
    if ours := OURS.fullmatch(name):
        scope, device, counter, unit = ours.groups()
        return Known(device, scope, counter, unit or "")
    missing = next((own for start, own in RADT.items() if name.startswith(start)), None)
    for pattern, scope, counter, unit, factor in RULES:
        if found := re.fullmatch(pattern, name):
            device = f"gpu{found[1] if found.groups() else 0}" if scope == "device" else "host"
            return Known(device, scope, counter, unit, factor, missing)
    return Known("host", "host", name.removeprefix("system/"), "", missing=missing)

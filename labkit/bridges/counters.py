"""Counters of other trackers as labkit's: by scope, name and unit, and no number for a missing value."""

import functools
import re
from dataclasses import dataclass

MISSING = {
    -1.0: "radT writes -1 where nvidia-smi gives no value",
    0.0: "0 at every sample: radT writes 0 where DCGM gives no value",
}
"""What radT writes for a value that it does not have, by the number"""


@dataclass(frozen=True)
class Known:
    """What a tracker's counter is in labkit's words."""

    device: str
    scope: str
    name: str
    unit: str
    factor: float = 1.0
    missing: float | None = None
    """Number that stands for a missing value: -1 at any sample, 0 only if it is there at every sample"""

    def values(self, logged: list[float]) -> tuple[list[float | None], list[str | None]]:
        """The values in labkit's unit, and a note where one is missing."""
        is_missing = [value != value for value in logged]
        why = "it was logged as not a number"
        if self.missing is not None and (self.missing == -1.0 or not any(logged)):
            is_missing = [gone or value == self.missing for gone, value in zip(is_missing, logged, strict=True)]
            why = MISSING[self.missing]
        values = [None if gone else value * self.factor for gone, value in zip(is_missing, logged, strict=True)]
        return values, [why if gone else None for gone in is_missing]


MIB, GIB = 2.0**20, 2.0**30
# of MLflow 3.17, W&B 0.31, Trackio 0.43 and radT 0.2.30; (#) is the number of a GPU
RULES: list[tuple[str, str, str, str, float, float | None]] = [
    (r"system/gpu_(#)_power_usage_watts", "device", "power", "W", 1, None),
    (r"system/gpu_(#)_utilization_percentage", "device", "gpu_utilisation", "%", 1, None),
    (r"system/gpu_(#)_memory_usage_megabytes", "device", "memory_used", "bytes", 1e6, None),
    (r"system/cpu_utilization_percentage", "host", "cpu_percent", "%", 1, None),
    (r"system/system_memory_usage_megabytes", "host", "memory_used", "bytes", 1e6, None),
    (r"gpu\.(#)\.powerWatts", "device", "power", "W", 1, None),
    (r"gpu\.(#)\.gpu", "device", "gpu_utilisation", "%", 1, None),
    (r"gpu\.(#)\.memory", "device", "memory_utilisation", "%", 1, None),
    (r"gpu\.(#)\.memoryAllocatedBytes", "device", "memory_used", "bytes", 1, None),
    (r"gpu\.(#)\.temp", "device", "temperature", "°C", 1, None),
    (r"gpu\.(#)\.smClock", "device", "sm_clock", "MHz", 1, None),
    (r"gpu\.(#)\.smActive", "device", "sm_active", "%", 1, None),
    (r"gpu\.(#)\.smOccupancy", "device", "sm_occupancy", "%", 1, None),
    (r"gpu\.(#)\.pipeTensorActive", "device", "tensor_active", "%", 1, None),
    (r"gpu\.(#)\.dramActive", "device", "dram_active", "%", 1, None),
    (r"proc\.memory\.rssMB", "process", "memory_resident", "bytes", MIB, None),
    (r"gpu/(#)/power", "device", "power", "W", 1, None),
    (r"gpu/(#)/energy_consumed", "device", "energy", "J", 1, None),
    (r"gpu/(#)/utilization", "device", "gpu_utilisation", "%", 1, None),
    (r"gpu/(#)/memory_utilization", "device", "memory_utilisation", "%", 1, None),
    (r"gpu/(#)/allocated_memory", "device", "memory_used", "bytes", GIB, None),
    (r"gpu/(#)/temp", "device", "temperature", "°C", 1, None),
    (r"gpu/(#)/sm_clock", "device", "sm_clock", "MHz", 1, None),
    (r"cpu/utilization", "host", "cpu_percent", "%", 1, None),
    (r"memory/used", "host", "memory_used", "bytes", GIB, None),
    (r"system/SMI - Power Draw", "device", "power", "W", 1, -1),
    (r"system/SMI - GPU Util", "device", "gpu_utilisation", "%", 100, -1),
    (r"system/SMI - Mem Util", "device", "memory_utilisation", "%", 100, -1),
    (r"system/SMI - Mem Used", "device", "memory_used", "bytes", MIB, -1),
    (r"system/DCGMI - Power Usage", "device", "power", "W", 1, 0),
    (r"system/DCGMI - Total Energy Consumption", "device", "energy", "J", 1e-3, 0),
    (r"system/DCGMI - GPU Utilization", "device", "gpu_utilisation", "%", 1, 0),
    (r"system/DCGMI - GR Engine Active", "device", "graphics_active", "%", 100, 0),
    (r"system/DCGMI - SM Active", "device", "sm_active", "%", 100, 0),
    (r"system/DCGMI - SM Occupancy", "device", "sm_occupancy", "%", 100, 0),
    (r"system/DCGMI - Tensor Active", "device", "tensor_active", "%", 100, 0),
    (r"system/DCGMI - DRAM Active", "device", "dram_active", "%", 100, 0),
]
OURS = re.compile(r"system/(host|process|device|mig)/([^/]+)/([^/]+?)(?: \(([^()]*)\))?")
"""A counter that labkit exported"""
_RULES = [(re.compile(rule[0].replace("#", r"\d+")), rule) for rule in RULES]


@functools.lru_cache(10_000)
def reading_of(name: str) -> Known:
    """What a tracker's counter is; one that labkit has no word for keeps its name, as one of the host."""
    if ours := OURS.fullmatch(name):
        scope, device, counter, unit = ours.groups()
        return Known(device, scope, counter, unit or "")
    for pattern, (_, scope, counter, unit, factor, missing) in _RULES:
        if found := pattern.fullmatch(name):
            number = found[1] if found.groups() else "0"
            return Known(f"gpu{number}" if scope == "device" else "host", scope, counter, unit, factor, missing)
    is_radt = name.startswith(("system/SMI - ", "system/DCGMI - "))
    missing = (-1.0 if "SMI - " in name and "DCGMI" not in name else 0.0) if is_radt else None
    return Known("host", "host", name.removeprefix("system/"), "", missing=missing)

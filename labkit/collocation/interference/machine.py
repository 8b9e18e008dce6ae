"""What the jobs share: cores, arithmetic, memory bandwidth and the last cache."""

from __future__ import annotations

import os
from dataclasses import dataclass

from labkit.hardware.cpu import read_cpu


@dataclass(frozen=True)
class Machine:
    """A device with its limits, as measured on it (the machine's card)."""

    device: str
    """Name of the CPU or the GPU"""
    cores: int
    """CPU cores that jobs may use; beside a GPU, those of its host"""
    gflops: float
    """Billions of floating-point operations a second, in the faster of fp32 and bf16"""
    gb_per_s: float
    """Bytes read and written in memory a second, in 1e9"""
    cache_bytes: int | None = None
    """Last-level cache that all cores share; None where this system does not say"""


def measure_machine(device: str = "cpu") -> Machine:
    """Measure this machine in some seconds, while nothing else runs on it.

    Args:
        device: "cpu", or a GPU as torch names it.
    """
    from labkit.hardware.calibration import calibrate

    card, cpu = calibrate(device, repeats=3), read_cpu()
    return Machine(
        device=card.device,
        cores=cpu.available_cores,
        gflops=max(card.fp32_gflops, card.bf16_gflops),
        gb_per_s=card.bandwidth_gb_per_s,
        cache_bytes=_last_cache(dict(cpu.caches)) if device == "cpu" else _gpu_cache(device),
    )


def cores_of_process() -> list[int]:
    """The CPU cores that this process may use, by number."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def _last_cache(caches: dict[str, int]) -> int | None:
    """Of the highest level; a cache of the first two is a core's own."""
    shared = {level: size for level, size in caches.items() if level.startswith("L") and level[1:] >= "3"}
    return shared[max(shared)] if shared else None


def _gpu_cache(device: str) -> int | None:
    import torch

    return torch.cuda.get_device_properties(device).L2_cache_size

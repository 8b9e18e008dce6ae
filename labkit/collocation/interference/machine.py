"""What the jobs share: cores, arithmetic, memory bandwidth and the last cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from labkit.hardware.cpu import read_cpu
from labkit.hardware.device import Device

LIKE = 1.25
"""Machines whose speeds differ by no more than this factor count as of one kind; our choice, to be beyond the noise of
two measurements and below the step from one generation of processors to the next"""


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

    def is_like(self, measure: Callable[[], Machine], cpu: Device) -> bool:
        """Whether numbers of this machine hold on another: by name, cores and, as measured there, what both can do.

        Args:
            measure: measures the other, which is done only where names and cores are equal: one name, "AMD EPYC" for
                one, stands for many processors.
            cpu: of the other.
        """
        if (self.device, self.cores) != (cpu.name, cpu.cores):
            return False
        other = measure()
        pairs = ((self.gflops, other.gflops), (self.gb_per_s, other.gb_per_s))
        return self.cache_bytes == other.cache_bytes and all(max(pair) <= LIKE * min(pair) for pair in pairs)


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


def _last_cache(caches: dict[str, int]) -> int | None:
    """Of the highest level; a cache of the first two is a core's own."""
    shared = {level: size for level, size in caches.items() if level.startswith("L") and level[1:] >= "3"}
    return shared[max(shared)] if shared else None


def _gpu_cache(device: str) -> int | None:
    import torch

    return torch.cuda.get_device_properties(device).L2_cache_size

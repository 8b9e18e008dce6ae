"""What the machine did while a run went on, sampled by a process of its own."""

from labkit.telemetry.energy import Energy, run_energy
from labkit.telemetry.memory import forget_peak_memory, peak_memory
from labkit.telemetry.reading import FAULTS
from labkit.telemetry.sampler import DEFAULT_HZ, LEAST_HZ, MOST_HZ, Sampler

__all__ = [
    "DEFAULT_HZ",
    "FAULTS",
    "LEAST_HZ",
    "MOST_HZ",
    "Energy",
    "Sampler",
    "forget_peak_memory",
    "peak_memory",
    "run_energy",
]

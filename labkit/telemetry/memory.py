"""The peak memory of a run, from its telemetry."""

from __future__ import annotations

from pathlib import Path

from labkit.telemetry.samples import read_samples


def peak_memory(folder: Path | str) -> int | None:
    """Largest resident memory of the job's processes, in bytes; None where nothing was sampled.

    The kernel's own high-water mark of the main process counts where it exists: it misses no peak between samples.
    """
    samples = read_samples(folder, scope="process", device="host")
    values = [
        value for counter in ("memory_resident", "memory_resident_peak") for _, value, _ in samples.get(counter, [])
    ]
    values = [value for value in values if value is not None]
    return int(max(values)) if values else None

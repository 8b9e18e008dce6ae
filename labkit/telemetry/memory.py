"""The peak memory of a run, from its telemetry."""

from __future__ import annotations

import contextlib
from pathlib import Path

from labkit.runs import read_events
from labkit.telemetry.samples import read_samples, sampler_failure


def peak_memory(folder: Path | str) -> int | None:
    """Largest resident memory of the job's processes, in bytes; None where nothing, or not all, was sampled.

    The kernel's own high-water mark of the main process counts where it exists: it misses no peak between samples.
    """
    if sampler_failure(read_events(folder)):
        return None
    samples = read_samples(folder, scope="process")
    told = [*samples.get("memory_resident", []), *samples.get("memory_resident_peak", [])]
    return max((int(sample.value) for sample in told if sample.value is not None), default=None)


def forget_peak_memory() -> None:
    """Start the kernel's high-water mark of this process anew, so that a run does not count its data's preparation.

    Where the kernel does not allow it, the mark keeps what came before.
    """
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # proc(5): 5 resets the peak resident set size


def own_peak_bytes() -> int:
    """The most memory that this process held."""
    import psutil

    # not getrusage's, which begins with that of the process that started this one
    memory = psutil.Process().memory_info()
    # Windows tells its peak; elsewhere that of now is the best there is
    return peak_bytes("self") or getattr(memory, "peak_wset", memory.rss)


def peak_bytes(pid: int | str) -> int | None:
    """The kernel's high-water mark of a process' memory; None where it keeps none."""
    with contextlib.suppress(OSError):
        _, found, rest = Path(f"/proc/{pid}/status").read_text().partition("VmHWM:")
        return 1024 * int(rest.split(None, 1)[0]) if found else None
    return None

"""The leanest counters of the host and of a job's processes that this system has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from labkit.telemetry.reading import Reading


class Counters(Protocol):
    """Something that is read at every sample."""

    def read(self) -> Iterator[Reading]:
        """Yield what can be read now.

        Raises:
            ProcessLookupError: the counters are of a process, and it is gone.
        """


def host_counters(pid: int | None, own_pid: int) -> list[Counters]:
    """Counters of the whole host, and of process `pid`, if any, and its descendants without the sampler's own process.

    Raises:
        ProcessLookupError: there is no such process.
    """
    if _has_proc():
        from labkit.telemetry.sources import host_proc as kind
    else:
        from labkit.telemetry.sources import host_psutil as kind
    return [kind.HostCounters(), *([] if pid is None else [kind.ProcessCounters(pid, own_pid)])]


def _has_proc() -> bool:
    """Whether this is a Linux that lists a thread's children, which some small kernels leave out."""
    return Path("/proc/thread-self/children").exists()

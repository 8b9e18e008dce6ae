"""CPU and memory of the host and of the job's processes, from psutil."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil

from labkit.telemetry.reading import Reading

RAPL = Path("/sys/class/powercap")


class HostCounters:
    """Host-wide CPU, memory and, where it is readable, CPU package energy."""

    def __init__(self, rapl: Path = RAPL):
        # a package domain is intel-rapl:0; intel-rapl:0:0 is a part of it that must not be counted twice
        self._packages = [path for path in sorted(rapl.glob("intel-rapl:*")) if path.name.count(":") == 1]
        self._energy_broken: str | None = None if self._packages else "no RAPL energy counter on this machine"
        psutil.cpu_percent()

    def read(self) -> Iterator[Reading]:
        memory = psutil.virtual_memory()
        yield Reading("host", "host", "cpu_percent", psutil.cpu_percent(), "%", "psutil")
        yield Reading("host", "host", "memory_used", memory.total - memory.available, "bytes", "psutil")
        yield from self._energy()

    def _energy(self) -> Iterator[Reading]:
        if self._energy_broken:
            yield Reading("host", "host", "cpu_energy", None, "J", "RAPL", self._energy_broken)
            return
        for package in self._packages:
            try:
                joules = int((package / "energy_uj").read_text()) / 1e6
            except OSError as error:
                self._energy_broken = f"RAPL is there but not readable ({error.strerror})"
                yield Reading("host", "host", "cpu_energy", None, "J", "RAPL", self._energy_broken)
                return
            wrap = int((package / "max_energy_range_uj").read_text()) / 1e6
            yield Reading("host", "host", f"cpu_energy_{package.name}", joules, "J", "RAPL", f"wraps at {wrap} J")


class ProcessCounters:
    """CPU, memory and threads of a process and its children, the sampler itself left out."""

    def __init__(self, pid: int, own_pid: int):
        self._root = psutil.Process(pid)
        self._own_pid = own_pid
        self._known: dict[int, psutil.Process] = {}

    def read(self) -> Iterator[Reading]:
        """Yield the readings.

        Raises:
            psutil.NoSuchProcess: the process is gone.
        """
        family = [self._root, *self._root.children(recursive=True)]
        cpu, rss, threads = 0.0, 0, 0
        for process in family:
            if process.pid == self._own_pid:
                continue
            # cpu_percent measures between two calls on the same object, so objects are kept
            process = self._known.setdefault(process.pid, process)
            try:
                with process.oneshot():
                    cpu += process.cpu_percent()
                    rss += process.memory_info().rss
                    threads += process.num_threads()
            except psutil.Error:
                if process is self._root:
                    raise
        yield Reading("host", "process", "cpu_percent", cpu, "% of a core", "psutil")
        yield Reading("host", "process", "memory_resident", rss, "bytes", "psutil")
        yield Reading("host", "process", "threads", threads, "count", "psutil")
        peak = _peak_bytes(self._root.pid)
        if peak is not None:
            yield Reading("host", "process", "memory_resident_peak", peak, "bytes", "/proc/PID/status VmHWM")


def _peak_bytes(pid: int) -> int | None:
    """Peak resident memory of one process as the kernel kept it; None where there is no /proc."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return None

"""CPU and memory of the host and of a job, from files of Linux' /proc that stay open (`benchmarks/sampler_cost.py`)."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from labkit.telemetry.reading import Reading

PROC = Path("/proc")
FAMILY_S = 0.5
"""Seconds between two searches for new children, which cost more than a sample."""
PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


class OpenFile:
    """A file of /proc, which the kernel writes anew whenever it is read from its beginning."""

    def __init__(self, path: Path, size: int):
        self._fd, self._size = os.open(path, os.O_RDONLY), size

    def read(self) -> bytes:
        """The first `size` bytes.

        Raises:
            ProcessLookupError: the process that the file is of is gone.
        """
        return os.pread(self._fd, self._size, 0)

    def __del__(self) -> None:
        # by whoever forgets it: also where a process ended while its files were being opened
        if hasattr(self, "_fd"):
            os.close(self._fd)


class HostCounters:
    """CPU and memory of the whole host."""

    def __init__(self, proc: Path = PROC):
        self._stat, self._meminfo = OpenFile(proc / "stat", 256), OpenFile(proc / "meminfo", 256)
        self._before = self._ticks()

    def read(self) -> Iterator[Reading]:
        busy, total = self._ticks()
        before_busy, before_total = self._before
        if total > before_total:  # ticks are 10 ms long; between two there is nothing to say
            share = (busy - before_busy) / (total - before_total)
            self._before = busy, total
            yield Reading("host", "host", "cpu_percent", 100 * max(0.0, share), "%", "/proc/stat")
        sizes = dict(line.split(b":") for line in self._meminfo.read().split(b"\n")[:3])  # of them, in kB
        total_kb, free_kb = (int(sizes[name].split()[0]) for name in (b"MemTotal", b"MemAvailable"))
        yield Reading("host", "host", "memory_used", 1024 * (total_kb - free_kb), "bytes", "/proc/meminfo")

    def _ticks(self) -> tuple[int, int]:
        """(busy, all) clock ticks of all cores since boot; a guest's are in its host's (proc_stat(5))."""
        user, nice, system, idle, waiting, irq, softirq, steal = map(int, self._stat.read().split()[1:9])
        busy = user + nice + system + irq + softirq + steal
        return busy, busy + idle + waiting


PF_EXITING = 0x4
"""Of a process' flags, linux/sched.h."""


class _Process:
    """One process of the job."""

    def __init__(self, pid: int, proc: Path):
        self.pid = pid
        self._stat, self._statm = OpenFile(proc / f"{pid}/stat", 1024), OpenFile(proc / f"{pid}/statm", 128)
        self._clock = (~pid << 3) | 2  # CPUCLOCK_SCHED of linux/posix-timers.h: exact, where stat counts in ticks
        self._cpu_s, self._at = self.cpu_s(), time.monotonic()

    def cpu_s(self) -> float:
        """CPU seconds of all its threads."""
        try:
            return time.clock_gettime(self._clock)
        except OSError as error:
            raise ProcessLookupError(self.pid) from error

    def read(self) -> tuple[float, int, int]:
        """(per cent of a core since the last reading, resident bytes, threads).

        Raises:
            ProcessLookupError: it is gone.
        """
        cpu_s, at = self.cpu_s(), time.monotonic()
        share = (cpu_s - self._cpu_s) / max(at - self._at, 1e-9)
        self._cpu_s, self._at = cpu_s, at
        fields = self._stat.read().rpartition(b")")[2].split()  # the name before it may hold anything
        if fields[0] == b"Z" or int(fields[6]) & PF_EXITING:  # its memory is given back already
            raise ProcessLookupError(self.pid)
        return 100 * share, int(self._statm.read().split()[1]) * PAGE, int(fields[17])


class ProcessCounters:
    """CPU, memory and threads of a process and its descendants, the sampler itself left out."""

    def __init__(self, pid: int, own_pid: int, proc: Path = PROC):
        """Open the files of process `pid`.

        Raises:
            ProcessLookupError: there is none.
        """
        self._proc, self._own_pid = proc, own_pid
        try:
            self._root = _Process(pid, proc)
            self._status = OpenFile(proc / f"{pid}/status", 4096)
        except FileNotFoundError as error:
            raise ProcessLookupError(pid) from error
        self._children: dict[int, _Process] = {}
        self._look_at = 0.0

    def read(self) -> Iterator[Reading]:
        """Yield the readings.

        Raises:
            ProcessLookupError: the process is gone.
        """
        if time.monotonic() >= self._look_at:
            self._find_children()
            self._look_at = time.monotonic() + FAMILY_S
        cpu, resident, threads = self._root.read()
        for pid, child in list(self._children.items()):
            try:
                of_child = child.read()
            except ProcessLookupError:
                del self._children[pid]
                continue
            cpu, resident, threads = cpu + of_child[0], resident + of_child[1], threads + of_child[2]
        yield Reading("host", "process", "cpu_percent", cpu, "% of a core", "CPU clock of the processes")
        yield Reading("host", "process", "memory_resident", resident, "bytes", "/proc/PID/statm")
        yield Reading("host", "process", "threads", threads, "count", "/proc/PID/stat")
        _, found, rest = self._status.read().partition(b"VmHWM:")
        if found:
            peak = 1024 * int(rest.split(None, 1)[0])
            yield Reading("host", "process", "memory_resident_peak", peak, "bytes", "/proc/PID/status VmHWM")

    def pids(self) -> set[int]:
        """The process and its descendants, as of the latest reading."""
        return {self._root.pid, *self._children}

    def _find_children(self) -> None:
        waiting = [self._root.pid]
        while waiting:
            for pid in self._children_of(waiting.pop()):
                if pid == self._own_pid:
                    continue
                waiting.append(pid)
                if pid not in self._children:
                    with contextlib.suppress(OSError):  # it may have ended meanwhile
                        self._children[pid] = _Process(pid, self._proc)

    def _children_of(self, pid: int) -> list[int]:
        found: list[int] = []
        with contextlib.suppress(OSError):
            for task in (self._proc / str(pid) / "task").iterdir():
                found += map(int, (task / "children").read_bytes().split())
        return found

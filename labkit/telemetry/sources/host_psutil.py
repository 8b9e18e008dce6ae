"""CPU and memory of the host and of a job's processes, from psutil: where there is no /proc to read."""

from __future__ import annotations

from collections.abc import Iterator

import psutil

from labkit.telemetry.reading import Reading


class HostCounters:
    """CPU and memory of the whole host."""

    def __init__(self):
        psutil.cpu_percent()

    def read(self) -> Iterator[Reading]:
        memory = psutil.virtual_memory()
        yield Reading("host", "host", "cpu_percent", psutil.cpu_percent(), "%", "psutil")
        yield Reading("host", "host", "memory_used", memory.total - memory.available, "bytes", "psutil")


class ProcessCounters:
    """CPU, memory and threads of a process and its children, the sampler itself left out."""

    def __init__(self, pid: int, own_pid: int):
        """Look at process `pid`.

        Raises:
            ProcessLookupError: there is none.
        """
        try:
            self._root = psutil.Process(pid)
        except psutil.NoSuchProcess as error:
            raise ProcessLookupError(pid) from error
        self._own_pid = own_pid
        self._known: dict[int, psutil.Process] = {}
        self._family = {pid}

    def read(self) -> Iterator[Reading]:
        """Yield the readings.

        Raises:
            ProcessLookupError: the process is gone.
        """
        try:
            family = [self._root, *self._root.children(recursive=True)]
            self._family = {process.pid for process in family} - {self._own_pid}
        except psutil.NoSuchProcess as error:
            raise ProcessLookupError(self._root.pid) from error
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
            except psutil.Error as error:
                if process is self._root:
                    raise ProcessLookupError(process.pid) from error
        yield Reading("host", "process", "cpu_percent", cpu, "% of a core", "psutil")
        yield Reading("host", "process", "memory_resident", rss, "bytes", "psutil")
        yield Reading("host", "process", "threads", threads, "count", "psutil")

    def pids(self) -> set[int]:
        """The process and its descendants, as of the latest reading."""
        return self._family

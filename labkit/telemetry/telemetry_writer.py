"""Writes readings into a run's telemetry."""

from __future__ import annotations

from pathlib import Path

from labkit.runs.parts import TELEMETRY, MergingPartWriter
from labkit.telemetry.reading import Reading

SERIES = ("device", "scope", "counter")


class TelemetryWriter:
    """Takes readings of one job; a context manager that leaves all of them on the disk."""

    def __init__(self, folder: Path, pid: int):
        """Write to `folder`/telemetry for the job `pid`."""
        self._pid = pid
        self._parts = MergingPartWriter(folder / "telemetry", TELEMETRY, sort_by=(*SERIES, "time_ns"))
        self._missing: dict[tuple, Reading] = {}

    def __enter__(self) -> TelemetryWriter:
        return self

    def __exit__(self, *exception) -> None:
        self._parts.close()

    def flush(self) -> None:
        """Put what has been taken on the disk now."""
        self._parts.flush()
        self._parts.settle()

    def append(self, time_ns: int, reading: Reading) -> None:
        """Take one reading; a counter that stays missing is written once, not at every sample."""
        series = reading[:3]
        if reading.value is None:
            if self._missing.get(series) == reading:
                return
            self._missing[series] = reading
        else:
            self._missing.pop(series, None)
        self._parts.append({"time_ns": time_ns, "pid": self._pid, **reading._asdict()})

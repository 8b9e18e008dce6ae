"""Reads one run's telemetry without pandas: for the few numbers that end up in its result, and while it is written."""

from __future__ import annotations

from bisect import bisect_right
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from labkit.runs import read_events
from labkit.runs.parts import TELEMETRY, current_parts, part_numbers, read_part
from labkit.telemetry.reading import Reading


class Sample(NamedTuple):
    """One value of one counter."""

    time_ns: int
    value: float | None
    note: str | None = None
    process: int = 0
    """Which of the processes that trained the run, in order: each resume began another."""


def sampler_failure(events: list[dict[str, Any]]) -> str | None:
    """Why the samples of a run are not whole, from its events; None where nothing failed."""
    return next((event.get("what") or "of unknown cause" for event in events if event.get("kind") == "sampler"), None)


def read_samples(folder: Path | str, *, scope: str, device: str | None = None) -> dict[str, list[Sample]]:
    """The samples of one scope, by counter, in time's order; of all devices together unless one is named."""
    samples: dict[str, list[Sample]] = {}
    # not by pid, which a container gives to each of its processes again
    resumed = [datetime.fromisoformat(each["time"]) for each in read_events(folder) if each["event"] == "resumed"]
    resumed = [int(date.timestamp() * 1e9) for date in resumed]
    columns = ["time_ns", "device", "scope", "counter", "value", "note"]
    for part in current_parts(Path(folder) / "telemetry"):
        table = read_part(part, TELEMETRY, columns)
        if table is None:
            continue
        for time_ns, of, where, counter, value, note in zip(*table.to_pydict().values(), strict=True):
            if where == scope and (device is None or of == device):
                samples.setdefault(counter, []).append(Sample(time_ns, value, note, bisect_right(resumed, time_ns)))
    return samples


class Row(NamedTuple):
    time_ns: int
    reading: Reading


class Tail:
    """Reads a run's telemetry part by part, each row once, although parts are merged meanwhile."""

    def __init__(self, folder: Path | str):
        self._folder = Path(folder) / "telemetry"
        self._seen: set[int] = set()
        """Numbers of the parts that were read."""
        self._latest_ns = 0

    def rows(self) -> list[Row]:
        """The rows that are new, part by part."""
        rows: list[Row] = []
        for part in current_parts(self._folder):
            numbers = set(part_numbers(part))
            if numbers <= self._seen:
                continue
            try:
                table = read_part(part, TELEMETRY, ["time_ns", *Reading._fields])
            except FileNotFoundError:
                continue  # merged since it was listed: the next look finds the large part
            # a part that others were merged into may hold what was seen before
            seen_ns = self._latest_ns if numbers & self._seen else -1
            self._seen |= numbers
            told = [] if table is None else zip(*table.to_pydict().values(), strict=True)
            new = [Row(time_ns, Reading(*reading)) for time_ns, *reading in told if time_ns > seen_ns]
            self._latest_ns = max([self._latest_ns, *(row.time_ns for row in new)])
            rows += new
        return rows

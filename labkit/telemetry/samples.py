"""Reads one run's telemetry without pandas: for the few numbers that end up in its result, and while it is written."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from labkit.runs import TELEMETRY, current_parts, part_numbers, read_events, read_part
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


def whole(series: list[Sample], moments: dict[int, list[int]]) -> list[Sample]:
    """A series; where it lacks the last tenth of a process, or 10 s if that is more, one sample that says so.

    `moments` are times in nanoseconds at which each process was there.
    """
    for process, last in {sample.process: sample for sample in series if sample.value is not None}.items():
        took_ns = max(moments[process]) - min(moments[process])
        missing_ns = max(moments[process]) - last.time_ns
        if missing_ns > max(10e9, took_ns / 10):
            note = f"the samples of its last {missing_ns / 1e9:.0f} s, of {took_ns / 1e9:.0f}, are missing"
            return [last._replace(value=None, note=note)]
    return series


def read_samples(folder: Path | str, *, scope: str, devices: Sequence[str] | None = None) -> dict[str, list[Sample]]:
    """The samples of one scope, by counter, in time's order and each series `whole`.

    Of all devices together, or of the one that is named for each process that trained the run.
    """
    samples: dict[str, list[Sample]] = {}
    events = [(int(datetime.fromisoformat(each["time"]).timestamp() * 1e9), each) for each in read_events(folder)]
    # not by pid, which a container gives to each of its processes again
    resumed = [time_ns for time_ns, event in events if event["event"] == "resumed"]
    moments: dict[int, list[int]] = defaultdict(list)
    for time_ns, event in events:
        # the end of a killed run is written when it is found
        if "wall_s" in event or (event["event"] == "ended" and event.get("ended_by") != "killed"):
            moments[bisect_right(resumed, time_ns)].append(time_ns)
    columns = ["time_ns", "device", "scope", "counter", "value", "note"]
    for part in current_parts(Path(folder) / "telemetry"):
        table = read_part(part, TELEMETRY, columns)
        if not table:
            continue
        rows = table.to_pydict()
        begin_ns = min(rows["time_ns"])
        process = bisect_right(resumed, begin_ns)
        moments[process] += [begin_ns, max(rows["time_ns"])]
        for time_ns, of, where, counter, value, note in zip(*rows.values(), strict=True):
            if where == scope and (devices is None or of == devices[process]):
                samples.setdefault(counter, []).append(Sample(time_ns, value, note, process))
    return {counter: whole(series, moments) for counter, series in samples.items()}


class TimedReading(NamedTuple):
    time_ns: int
    reading: Reading


class Tail:
    """Reads a run's telemetry part by part, each row once, although parts are merged meanwhile."""

    def __init__(self, folder: Path | str):
        self._folder = Path(folder) / "telemetry"
        self._seen: set[int] = set()
        """Numbers of the parts that were read."""
        self._latest_ns = 0

    def rows(self) -> list[TimedReading]:
        """The rows that are new, part by part."""
        rows: list[TimedReading] = []
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
            new = [TimedReading(time_ns, Reading(*reading)) for time_ns, *reading in told if time_ns > seen_ns]
            self._latest_ns = max([self._latest_ns, *(row.time_ns for row in new)])
            rows += new
        return rows

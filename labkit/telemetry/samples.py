"""Reads one run's telemetry without pandas: once, for its result, and part by part while it is being written."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import pyarrow.compute as pc

from labkit import runs
from labkit.telemetry.counters import Reading

OF_A_RESULT = r"^(energy|power|board_power|cpu_energy.*|memory_resident|memory_resident_peak)$"
"""Counters that a run's result needs: those of `run_energy` and of `peak_memory`."""


class Sample(NamedTuple):
    """One value of one counter."""

    time_ns: int
    value: float | None
    note: str | None = None
    process: int = 0
    """Number of the process that trained the run, in order: each resume begins another one."""


class Samples:
    """The samples of one run, read once."""

    def __init__(self, folder: Path | str, counters: str = ""):
        """Read the telemetry in `folder`; `counters` is a pattern of the counters to keep, by default all."""
        self.folder, self.events = Path(folder), runs.read_events(folder)
        kinds = (event for event in self.events if event.get("kind") == "sampler")
        self.failure: str | None = next((event.get("what") or "unknown cause" for event in kinds), None)
        """Reason why the samples are incomplete; None if the sampler did not fail."""
        self._series: dict[tuple[str, str, int, str], list[Sample]] = {}
        """Samples in the order they were taken, by scope, device, process and counter."""
        self._moments: dict[int, list[int]] = defaultdict(list)
        """Times in ns at which each process existed."""
        times = [int(datetime.fromisoformat(event["time"]).timestamp() * 1e9) for event in self.events]
        # not by pid: a container may give the same one to each of its processes
        resumed = [time_ns for time_ns, event in zip(times, self.events, strict=True) if event["event"] == "resumed"]
        for time_ns, event in zip(times, self.events, strict=True):
            # the end of a killed run was written later, when it was found
            if "wall_s" in event or (event["event"] == "ended" and event.get("ended_by") != "killed"):
                self._moments[bisect_right(resumed, time_ns)].append(time_ns)
        for part in runs.current_parts(self.folder / "telemetry"):
            table = runs.read_part(part, runs.TELEMETRY, ["time_ns", "device", "scope", "counter", "value", "note"])
            if not table:
                continue
            first, last = pc.min_max(table["time_ns"]).as_py().values()
            process = bisect_right(resumed, first)
            self._moments[process] += [first, last]
            rows = table.filter(pc.match_substring_regex(table["counter"], counters)) if counters else table
            for time_ns, device, scope, counter, value, note in zip(*rows.to_pydict().values(), strict=True):
                series = self._series.setdefault((scope, device, process, counter), [])
                series.append(Sample(time_ns, value, note, process))

    def of(self, scope: str, devices: Sequence[str] | None = None) -> dict[str, list[Sample]]:
        """The series of one scope by counter, each of them `whole`.

        They are of all devices, one after the other, or of the device that `devices` names for each process that
        trained the run.
        """
        found: dict[str, list[Sample]] = {}
        for (where, device, process, counter), series in self._series.items():
            if where == scope and (devices is None or device == devices[process]):
                found.setdefault(counter, []).extend(series)
        return {counter: whole(series, self._moments) for counter, series in found.items()}


def read_samples(folder: Path | str, *, scope: str, devices: Sequence[str] | None = None) -> dict[str, list[Sample]]:
    """The samples of one scope of a run, as `Samples.of` gives them."""
    return Samples(folder).of(scope, devices)


def whole(series: list[Sample], moments: dict[int, list[int]]) -> list[Sample]:
    """A series; if it lacks the last tenth of a process (at least 10 s), a single empty sample that says so.

    `moments` are times in nanoseconds at which each process existed.
    """
    for process, last in {sample.process: sample for sample in series if sample.value is not None}.items():
        took_ns = max(moments[process]) - min(moments[process])
        missing_ns = max(moments[process]) - last.time_ns
        if missing_ns > max(10e9, took_ns / 10):
            note = f"the samples of its last {missing_ns / 1e9:.0f} s, of {took_ns / 1e9:.0f}, are missing"
            return [last._replace(value=None, note=note)]
    return series


def peak_memory(run: Samples | Path | str) -> int | None:
    """Largest resident memory of the job's processes, in bytes; None if nothing, or not everything, was sampled.

    The kernel's own high-water mark of the main process counts where it exists, because it misses no peak between
    samples.
    """
    samples = run if isinstance(run, Samples) else Samples(run, OF_A_RESULT)
    if samples.failure:
        return None
    series = samples.of("process")
    values = [*series.get("memory_resident", []), *series.get("memory_resident_peak", [])]
    return max((int(sample.value) for sample in values if sample.value is not None), default=None)


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
        """The new rows, part by part."""
        rows: list[TimedReading] = []
        for part in runs.current_parts(self._folder):
            numbers = set(runs.part_numbers(part))
            if numbers <= self._seen:
                continue
            try:
                table = runs.read_part(part, runs.TELEMETRY, ["time_ns", *Reading._fields])
            except FileNotFoundError:
                continue  # it was merged since it was listed: the next look finds the large part
            # a merged part may contain rows that were read before
            seen_ns = self._latest_ns if numbers & self._seen else -1
            self._seen |= numbers
            found = [] if table is None else zip(*table.to_pydict().values(), strict=True)
            new = [TimedReading(time_ns, Reading(*reading)) for time_ns, *reading in found if time_ns > seen_ns]
            self._latest_ns = max([self._latest_ns, *(row.time_ns for row in new)])
            rows += new
        return rows

"""Follows the telemetry that another process writes: every call gives what is new since the last."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from labkit.runs.parts import TELEMETRY, current_parts, part_numbers, read_part
from labkit.telemetry.reading import Reading


class Row(NamedTuple):
    """A reading and when it was made."""

    time_ns: int
    reading: Reading


class Tail:
    """Reads a run's telemetry part by part, each row once, although parts are merged meanwhile."""

    def __init__(self, folder: Path | str):
        """Follow the run in `folder`, from its first sample on."""
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
                part_rows = read_part(part, TELEMETRY, ["time_ns", *Reading._fields])
            except FileNotFoundError:
                continue  # merged since it was listed: the next look finds the large part
            # a part that others were merged into may hold what was seen before
            seen_ns = self._latest_ns if numbers & self._seen else -1
            self._seen |= numbers
            if part_rows is None:
                continue
            table = part_rows.to_pydict()
            for time_ns, *reading in zip(*table.values(), strict=True):
                if time_ns > seen_ns:
                    rows.append(Row(time_ns, Reading(*reading)))
            self._latest_ns = max([self._latest_ns, *table["time_ns"]])
        return rows

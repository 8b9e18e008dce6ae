"""Follows the telemetry that another process writes: every call gives what is new since the last."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from labkit.runs.parts import readable_parts
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
        self._seen: set[Path] = set()
        self._latest_ns = 0

    def rows(self) -> list[Row]:
        """The rows that are new, part by part."""
        import pyarrow.parquet as pq

        whole, _ = readable_parts(self._folder)
        rows: list[Row] = []
        for part in whole:
            if part in self._seen:
                continue
            self._seen.add(part)
            seen_ns = self._latest_ns  # a part that others were merged into holds what was seen before
            table = pq.read_table(part, columns=["time_ns", *Reading._fields]).to_pydict()
            for time_ns, *reading in zip(*table.values(), strict=True):
                if time_ns > seen_ns:
                    self._latest_ns = max(self._latest_ns, time_ns)
                    rows.append(Row(time_ns, Reading(*reading)))
        return rows

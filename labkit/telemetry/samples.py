"""Reads one run's telemetry without pandas, for the few numbers that end up in its result."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq

from labkit.runs.parts import readable_parts


class Sample(NamedTuple):
    """One value of one counter."""

    time_ns: int
    value: float | None
    note: str | None = None
    pid: int = 0
    """The process that was sampled; a run that was resumed has had several."""


def read_samples(folder: Path | str, *, scope: str, device: str | None = None) -> dict[str, list[Sample]]:
    """The samples of one scope, by counter, in time's order; of all devices together unless one is named."""
    samples: dict[str, list[Sample]] = {}
    parts, _ = readable_parts(Path(folder) / "telemetry")
    columns = ["time_ns", "device", "scope", "counter", "value", "note", "pid"]
    for part in parts:
        table = pq.read_table(part, columns=columns).to_pydict()
        for time_ns, of, where, counter, value, note, pid in zip(*(table[name] for name in columns), strict=True):
            if where == scope and (device is None or of == device):
                samples.setdefault(counter, []).append(Sample(time_ns, value, note, pid))
    return samples

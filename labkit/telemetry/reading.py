"""One reading of one counter: a value, or null and the reason."""

from __future__ import annotations

from typing import NamedTuple


class Reading(NamedTuple):
    """A row of `telemetry/*.parquet` without its time."""

    device: str
    """"host", or the UUID of a GPU."""
    scope: str
    """"host", "process" (the job and its children), "device" or "mig"."""
    counter: str
    value: float | None
    unit: str
    source: str
    note: str | None = None
    """Why there is no value."""

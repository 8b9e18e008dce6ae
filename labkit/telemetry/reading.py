"""One reading of one counter, a value or null and the reason; and what can break while readings are made."""

from __future__ import annotations

from collections.abc import Callable
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


FAULTS = {
    "sampler_died": "the sampler died and was started again: its samples have a gap",
    "gpu_lost": "a GPU was lost: its samples end there",
    "source_hangs": "a source of counters hangs: its samples have a gap",
    "source_back": "a source of counters that hung answers again",
}
"""Kinds of faults, as in the events of a run, in words."""

OnFault = Callable[[str, str], None]
"""Told (kind, what) of a fault."""

"""One reading of one counter, a value or null and the reason; what can break meanwhile; and recordings of readings."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from labkit.errors import UserError


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


def recorded(path: Path, turns: Iterable[list[Reading]]) -> Iterator[list[Reading]]:
    """Pass readings on, and write them to a file that is not there yet: a turn a line, as JSON."""
    try:
        file = path.open("x", encoding="utf-8", buffering=1)
    except FileExistsError as error:
        raise UserError(f"{path}: this file is there already: name a new one for the recording.") from error
    with file:
        for readings in turns:
            file.write(json.dumps(readings) + "\n")
            yield readings


def replayed(path: Path) -> Iterator[list[Reading]]:
    """The turns that `recorded` wrote to a file."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            yield [Reading(*each) for each in json.loads(line)]
        except (ValueError, TypeError) as error:
            raise UserError(
                f"{path}, line {number}: this is no line of a recording (`labkit monitor --record`)."
            ) from error

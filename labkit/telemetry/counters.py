"""Counters: their vocabulary (counters.toml), readings, recordings of readings, and the latest value of each."""

import json
import math
import tomllib
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from labkit import UserError, hardware


@dataclass(frozen=True)
class Counter:
    """The meaning of a counter."""

    name: str
    scopes: tuple[str, ...]
    unit: str
    definition: str
    not_said: str
    """What the counter does not show, although readers often think so."""
    ceiling: float = math.inf
    """Largest possible value; a larger or negative one is nonsense."""
    resolution: float = 1.0
    """Step that values are rounded to: finer digits are noise and cost bytes on disk."""


def vocabulary() -> tuple[Counter, ...]:
    """Every counter, in the order of the documentation."""
    table = tomllib.loads(files("labkit.telemetry").joinpath("counters.toml").read_text(encoding="utf-8"))
    return tuple(Counter(**each | {"scopes": tuple(each["scopes"])}) for each in table["counter"])


COUNTERS = {(scope, counter.name): counter for counter in vocabulary() for scope in counter.scopes}
"""By scope and name."""


def counter_of(scope: str, name: str) -> Counter:
    """The meaning of a counter in a run's telemetry; KeyError if it is not in the vocabulary."""
    return COUNTERS[scope, "cpu_energy" if name.startswith("cpu_energy") else name]


class Reading(NamedTuple):
    """One reading of one counter: a row of `telemetry/*.parquet` without its time."""

    device: str
    """"host", or the UUID of a GPU."""
    scope: str
    """"host", "process" (the job and its children), "rank", "device" or "mig"."""
    counter: str
    value: float | None
    unit: str
    source: str
    note: str | None = None
    """Reason why there is no value."""


FAULTS = {
    "sampler_died": "the sampler died and was started again: its samples have a gap",
    "gpu_lost": "a GPU was lost: its samples end there",
    "source_hangs": "a source of counters does not answer: its samples have a gap",
    "source_back": "a source of counters answers again",
}
"""Texts for the kinds of faults in a run's events."""

OnFault = Callable[[str, str], None]
"""Called with the kind of a fault and what happened."""


def recorded(path: Path, turns: Iterable[list[Reading]]) -> Iterator[list[Reading]]:
    """Pass readings on and write them to a new file, as one JSON line per turn."""
    try:
        file = path.open("x", encoding="utf-8", buffering=1)
    except FileExistsError as error:
        raise UserError(f"{path}: this file exists already: give the recording another name.") from error
    with file:
        for readings in turns:
            file.write(json.dumps(readings) + "\n")
            yield readings


def replayed(path: Path) -> Iterator[list[Reading]]:
    """The turns in a file that `recorded` wrote."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            yield [Reading(*each) for each in json.loads(line)]
        except (ValueError, TypeError) as error:
            raise UserError(
                f"{path}, line {number}: this is not a line of a recording: give a file that `labkit monitor --record` "
                "wrote."
            ) from error


KEPT = 40
"""Number of readings in a history."""
STALE = 3
"""Number of turns without a new reading after which a value is no longer shown."""
BARS = "▁▂▃▄▅▆▇█"


class Latest:
    """Keeps the latest readings of every counter."""

    def __init__(self):
        self.histories: dict[tuple[str, str, str], deque[tuple[int, Reading]]] = defaultdict(lambda: deque(maxlen=KEPT))
        """Turns and readings by device, scope and counter, oldest first"""
        self._turn = 0

    def take(self, readings: Iterable[Reading]) -> None:
        """Take the readings of a turn, oldest first; an empty turn changes nothing."""
        for place, reading in enumerate(readings):
            self._turn += place == 0
            self.histories[reading[:3]].append((self._turn, reading))

    def shown(self) -> list[list[Reading]]:
        """The readings with a value of each counter that has a current one, in order of device and scope."""
        histories = (history for _, history in sorted(self.histories.items()))
        current = (each for each in histories if each[-1][1].value is not None and each[-1][0] > self._turn - STALE)
        return [[reading for _, reading in each if reading.value is not None] for each in current]

    def missing(self) -> dict[str, list[str]]:
        """Counters without a current value, by the reason for it."""
        reasons: dict[str, list[str]] = {}
        for (_, _, counter), history in sorted(self.histories.items()):
            _, reading = history[-1]
            if reading.value is None:
                reasons.setdefault(reading.note or "no reason given", []).append(counter)
        return reasons


def bars(values: Sequence[float]) -> str:
    """Values as bars, from the smallest to the largest of them.

    >>> bars([0.0, 1.0, 2.0, 7.0])
    '▁▂▃█'
    """
    low, high = min(values), max(values)
    step = (high - low) / (len(BARS) - 1)
    return "".join(BARS[round((value - low) / step)] if step else BARS[0] for value in values)


def value_text(value: float, unit: str) -> str:
    """A value as text, in a unit that is easy to read.

    >>> value_text(3 * 2**30, "bytes"), value_text(12.34, "%"), value_text(2.5e9, "bytes/s"), value_text(2, "count")
    ('3 GiB', '12.3 %', '2.5 GB/s', '2')
    """
    if unit == "bytes":
        return hardware.size_text(value)
    if unit == "bytes/s":
        return f"{value / 1e9:.3g} GB/s"
    number = f"{value:,.1f}" if value % 1 else f"{value:,.0f}"
    return number if unit == "count" else f"{number} {unit}"

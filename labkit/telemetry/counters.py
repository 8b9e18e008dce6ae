"""The one vocabulary of counters: what each means, in which unit, and what it does not say (counters.toml).

`docs/counters.md` is this table in words; a test holds the two together.
"""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True)
class Counter:
    """What a counter means."""

    name: str
    scopes: tuple[str, ...]
    unit: str
    definition: str
    not_said: str
    """What readers take it for and it is not."""
    ceiling: float = math.inf
    """A larger value is nonsense; so is one below zero."""
    resolution: float = 1.0
    """What a value is rounded to: finer is noise of the measurement, and costs bytes on disk."""


def vocabulary() -> tuple[Counter, ...]:
    """Every counter, in the order of the documentation."""
    table = tomllib.loads(files("labkit.telemetry").joinpath("counters.toml").read_text(encoding="utf-8"))
    return tuple(Counter(**each | {"scopes": tuple(each["scopes"])}) for each in table["counter"])


COUNTERS = {(scope, counter.name): counter for counter in vocabulary() for scope in counter.scopes}
"""By scope and name."""


def counter_of(scope: str, name: str) -> Counter:
    """The meaning of a counter in a run's telemetry.

    Raises:
        KeyError: it is not in the vocabulary.
    """
    return COUNTERS[scope, "cpu_energy" if name.startswith("cpu_energy") else name]

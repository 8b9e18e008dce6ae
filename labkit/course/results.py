"""The results record of a notebook: its numbers by name, each with bounds that hold on any machine."""

from __future__ import annotations

import math
from typing import Any

MIME = "application/vnd.labkit.results+json"

Bounded = tuple[float | None, float, float]
"""(value, lowest, highest); the value is None where a run gave none."""


def results(**numbers: Bounded) -> None:
    """Print a notebook's numbers and keep them in its output for programs.

    Args:
        numbers: by name, (value, lowest, highest) where the value may be None, such as the time to a target that was
            not reached.
    """
    from IPython.display import display

    record, words = {}, []
    for name, (value, low, high) in numbers.items():
        value = None if value is None else float(value)
        record[name] = {"value": value, "low": low, "high": high}
        words.append(f"{name} = {'none' if value is None else f'{value:.4g}'}")
    display({MIME: record, "text/plain": "\n".join(words)}, raw=True)


def breaches(record: dict[str, dict[str, Any]]) -> list[str]:
    """What of a results record is out of its bounds or no number.

    >>> breaches({"auc": {"value": 1.2, "low": 0.5, "high": 1.0}})
    ['auc is 1.2, not from 0.5 to 1']
    """
    found = []
    for name, entry in record.items():
        value, low, high = entry["value"], entry["low"], entry["high"]
        if value is None:
            continue
        if not math.isfinite(value) or not low <= value <= high:
            found.append(f"{name} is {value:g}, not from {low:g} to {high:g}")
    return found

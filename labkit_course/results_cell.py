"""The results record of a notebook: its numbers by name, each with bounds that hold on any machine."""

from __future__ import annotations

MIME = "application/vnd.labkit.results+json"


def results(**numbers: tuple[float | None, float, float]) -> None:
    """Print a notebook's numbers and keep them in its output for programs.

    Args:
        numbers: by name, (value, lowest, highest) where the value may be None, such as the time to a target that was
            not reached.
    """
    from IPython.display import display

    record = {
        name: {"value": None if value is None else float(value), "low": low, "high": high}
        for name, (value, low, high) in numbers.items()
    }
    words = [f"{name} = {'none' if e['value'] is None else format(e['value'], '.4g')}" for name, e in record.items()]
    display({MIME: record, "text/plain": "\n".join(words)}, raw=True)

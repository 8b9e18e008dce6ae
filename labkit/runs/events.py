"""`events.jsonl`: what happened in a run, a line a fact."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypedDict

from labkit.json_data import Moment, check_shape, parse_json
from labkit.runs.notes import note_left_out
from labkit.runs.record import UsedDevice


class _Known(TypedDict, total=False):
    """What readers look for in any event."""

    step: int
    samples: float
    wall_s: float
    train_s: float
    metric: str | None
    value: float | None
    metrics: dict[str, float | None]
    loss: float | None
    samples_per_s: float | None
    kind: str
    what: str | None
    target: float | None
    host: str | None
    devices: list[UsedDevice]


class Event(_Known):
    """What every event has."""

    event: str
    time: Moment


class Resumed(Event):
    step: int
    parts: int


class Began(Event):
    clock_s: float


class Windows(Event):
    name: str
    begin_ns: list[int]
    end_ns: list[int]


_SHAPES = {"resumed": Resumed, "began": Began, "windows": Windows}


def read_events(folder: Path | str) -> list[dict[str, Any]]:
    """The events of a run that count: after a resume, evaluations beyond the resumed step are superseded.

    A line that is no event is noted and left out; so is, without a note, a last one that a crash cut short.
    """
    path = Path(folder) / "events.jsonl"
    events: list[dict[str, Any]] = []
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return events
    except OSError as error:
        note_left_out(path, f"it cannot be read ({error.strerror})")
        return events
    for number, line in enumerate(lines, 1):
        try:
            event = parse_json(line)
            check_shape(event, Event)
            check_shape(event, _SHAPES.get(event["event"], Event))
        except ValueError as error:
            if line.strip() and number < len(lines):
                note_left_out(path, f"line {number} is no event ({error})")
            continue
        if event["event"] == "resumed":
            step = event["step"]
            events = [e for e in events if "wall_s" not in e or e.get("step", 0) <= step]
        events.append(event)
    return events

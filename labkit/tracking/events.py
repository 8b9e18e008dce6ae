"""What a run tells whoever watches it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Point:
    """Where in a run an evaluation took place."""

    step: int
    samples: int
    wall_s: float
    """Seconds of training, evaluation and checkpoints since the first step."""
    train_s: float
    """Seconds of training alone."""


@dataclass(frozen=True)
class Notice:
    """Something whoever watches should know, in one line."""

    text: str


@dataclass(frozen=True)
class Preparing:
    """How far the data's preparation is."""

    fraction: float
    text: str


@dataclass(frozen=True)
class Started:
    """The run folder is there."""

    run: str
    folder: str
    config: dict[str, Any]


@dataclass(frozen=True)
class Ready:
    """All is built, and the first step comes when the listener returns: others may be waited for here."""


@dataclass(frozen=True)
class Progress:
    """Where the run is, and the latest evaluation."""

    point: Point
    samples_per_s: float
    """Training samples per second of training time."""
    loss: float
    """NaN where the script tells none."""
    metrics: dict[str, float]
    """The latest evaluation; empty before the first."""
    evaluated: bool
    """Whether that evaluation was made just now."""


def read_event(told: dict[str, Any]) -> Any:
    """The event that another process told: its fields, and under "kind" the name of its class."""
    fields = dict(told)
    kind = {each.__name__: each for each in (Notice, Preparing, Started, Ready, Progress)}[fields.pop("kind")]
    return kind(**fields | ({"point": Point(**fields["point"])} if kind is Progress else {}))


OnEvent = Callable[[Any], None]
"""Takes any of the above."""

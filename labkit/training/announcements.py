"""What a run tells its onlooker, besides the loop's Progress."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Notice:
    """Something an onlooker should know, in one line."""

    text: str


@dataclass(frozen=True)
class Preparing:
    """How far the data's preparation is."""

    fraction: float
    text: str


@dataclass(frozen=True)
class Started:
    """The run folder is there and training begins."""

    run: str
    folder: str
    config: dict[str, Any]


@dataclass(frozen=True)
class Ready:
    """All is built, and the first step comes when the onlooker returns: others may be waited for here."""


OnEvent = Callable[[Any], None]
"""Takes Notice, Preparing, Started, Ready, and the loop's Progress."""

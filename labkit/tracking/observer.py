"""Whoever looks at the steps of a run while it trains, a profiler say."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from torch import device


class StepObserver(Protocol):
    """Is told of each step, and says when it has seen enough.

    A run that is observed trains towards no target: it is not evaluated, tested or saved for a resume, and its record
    says by whom it was observed.
    """

    def describe(self) -> dict[str, Any]:
        """What the run's configuration says of it, under "profile"."""

    def start(self, folder: Path, on: device) -> None:
        """The run in this folder is about to take its first step on a device."""

    def step(self) -> bool:
        """A step was taken; whether the run is to end now."""

    def finish(self) -> None:
        """The run has ended, however it did."""

"""When a checkpoint is saved, and what is in it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict

from labkit.tracking.evaluations import Evaluations
from labkit.tracking.goal import Target
from labkit.tracking.kept import Kept
from labkit.tracking.position import Clock, Position
from labkit.tracking.recording import Recording
from labkit.tracking.schedule import Schedule


class Saving:
    """Saves what a resumed run needs at moments at which all that the script does for the steps so far is done."""

    def __init__(
        self,
        position: Position,
        clock: Clock,
        kept: Kept,
        schedule: Schedule,
        evaluations: Evaluations,
        recording: Recording,
        settle: Callable[[], None],
    ):
        """`settle` brings all that is on its way to the disk, and raises where a weight is no number."""
        self._position, self._clock, self._kept, self._schedule = position, clock, kept, schedule
        self._evaluations, self._recording, self._settle = evaluations, recording, settle
        self.is_wanted = False
        """Whether there was an evaluation since the last one"""
        self.is_frozen = False
        """Whether what a resumed run goes on from is saved, whatever the script does before its next step"""

    def at_safe_point(self, *, ends_here: bool = False) -> None:
        """A checkpoint may be saved.

        Args:
            ends_here: the loop ends within an epoch, and a resumed run goes on from here whatever the script does next.
        """
        if ends_here or (self.is_wanted and self._kept.has_rested):
            self.save()
        self.is_frozen = self.is_frozen or ends_here

    def save(self) -> None:
        """Save a checkpoint now, unless nothing is kept or nothing has changed."""
        if not (self._kept.parts and self._clock.is_running and self._recording.saves):
            return
        if self.is_frozen and not self.is_wanted:
            return
        began, position = time.perf_counter(), self._position
        self._settle()
        content = {
            "position": asdict(position),
            "crossings": self._evaluations.crossings.state_dict(),
            "target": str(self._evaluations.target),
        }
        if not self.is_frozen:
            content |= {"random": self._schedule.state(), "kept": self._kept.state()}
        self._kept.save(began, position.best_step, content)
        self.is_wanted = False
        self._clock.book(training=False)
        self._recording.event("checkpoint", path="checkpoint/latest.pt", **asdict(position.point))

    def resume(self) -> None:
        """Go on from the folder's latest checkpoint; models and optimisers follow when the script keeps them."""
        content, position = self._kept.restore(), self._position
        if content is None:
            return
        vars(position).update(content["position"])
        self._schedule.resume(content["random"])
        before = None if content["target"] == "None" else Target.parse(content["target"])
        self._evaluations.resume(before, content["crossings"], self._recording.folder, self._recording.event)
        self._recording.notice(f"going on from step {position.step:,}, {position.samples:,} samples")

"""What a script keeps: its models and optimisers, their checkpoints and when these are saved, and the best weights."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from labkit.errors import UserError
from labkit.runs import read_events
from labkit.tracking.checkpoint import load_checkpoint, on_host, save_checkpoints, step_of
from labkit.tracking.ending import Diverged
from labkit.tracking.evaluations import Evaluations
from labkit.tracking.events import Point
from labkit.tracking.loop import Loop
from labkit.tracking.meter import Meter
from labkit.tracking.recording import Recording

REST = 40
"""A checkpoint that took t seconds is not repeated before 40 t have passed: at most 2.5 % of a run goes into them."""


class Kept:
    """The parts of one run that checkpoints hold, saved when all that the script does for the steps so far is done."""

    def __init__(self, meter: Meter, loop: Loop, evaluations: Evaluations, recording: Recording):
        self._meter, self._loop, self._evaluations, self._recording = meter, loop, evaluations, recording
        self._folder: Path = recording.folder
        self.latest, self._best_file = (self._folder / "checkpoint" / name for name in ("latest.pt", "best.pt"))
        self.is_wanted = False
        """Whether there was an evaluation since the last checkpoint"""
        self.is_frozen = False
        """Whether what a resumed run goes on from is saved, whatever the script does before its next step"""
        self.parts: dict[str, Any] = {}
        self.restored: dict[str, Any] | None = None
        """By name, what is to get its state back when the script keeps it"""
        self._best: dict[str, dict[str, Any]] = {}
        self._best_is_new = False
        self._saved_at, self._took_s = time.perf_counter(), 0.0

    @property
    def modules(self) -> dict[str, Any]:
        """Those with parameters."""
        return {name: part for name, part in self.parts.items() if hasattr(part, "parameters")}

    def parameters(self) -> Iterator[Any]:
        for module in self.modules.values():
            yield from module.parameters()

    def add(self, name: str, part: Any) -> None:
        """Keep a part from here on; in a resumed run it gets its state back."""
        if not (hasattr(part, "state_dict") and hasattr(part, "load_state_dict")):
            raise UserError(
                f"run.keep({name}=...): a {type(part).__name__} has no state_dict to be kept: pass a model, an "
                "optimiser, or an object with state_dict() and load_state_dict()."
            )
        if self.restored is not None:
            if name not in self.restored:
                raise UserError(
                    f"{self._folder}: its checkpoint keeps {', '.join(self.restored)} and no {name}, so it is of "
                    "another script: resume it with the script that made it, or start a new run."
                )
            part.load_state_dict(self.restored[name])
        self.parts[name] = part
        if not getattr(part, "keeps_best", True) and self._meter.position.keeps_best:
            self._meter.position.keeps_best = False
            self._recording.notice(f"{name} are too large for a copy of the best weights: the last are tested")

    def resume(self) -> None:
        """Go on from the folder's latest checkpoint; models and optimisers follow when the script keeps them."""
        if self.latest.exists():
            content, position = load_checkpoint(self.latest), self._meter.position
            self.restored, self._loop.resumed = content["kept"], content["random"]
            vars(position).update(content["position"])
            self._evaluations.resume(read_events(self._folder))
            self._recording.notice(f"going on from step {position.step:,}, {position.samples:,} samples")

    def note_best(self) -> None:
        """The weights as they are now are the best."""
        if not self._meter.position.keeps_best:
            return
        for name, module in self.modules.items():
            self._best.pop(name, None)  # before there is another copy
            self._best[name] = on_host(module.state_dict(), copied=True)
        self._best_is_new = bool(self._best)

    def load_best(self) -> None:
        """Put the best weights back, those of an earlier process of this run where this one found none better."""
        if not self._best and self._best_file.exists():
            self._best = load_checkpoint(self._best_file)["kept"]
        for name, weights in self._best.items():
            self.parts[name].load_state_dict(weights)

    def at_safe_point(self, *, ends_here: bool = False) -> None:
        """A checkpoint may be saved.

        With `ends_here` the loop ends within an epoch: a resumed run goes on from here, whatever the script does next.
        """
        has_rested = time.perf_counter() - self._saved_at >= REST * self._took_s
        if ends_here or (self.is_wanted and has_rested):
            self.save()
        self.is_frozen = self.is_frozen or ends_here

    def save(self) -> None:
        """Save the best weights, if they are new, and what a resumed run needs; nothing where nothing has changed."""
        if not (self.parts and self._meter.is_running and self._recording.saves):
            return
        if self.is_frozen and not self.is_wanted:
            return
        began, position = time.perf_counter(), self._meter.position
        # all that is on its way comes to the disk first: whoever resumes from here repeats no earlier step
        self._meter.read_losses(wait=True)
        if position.evaluated_step != position.step:
            self.check_weights()  # an evaluation has just done so
        self._loop.leave_epoch()
        self._recording.flush()
        if self.is_frozen:
            content = load_checkpoint(self.latest)
        else:
            kept = {name: on_host(part.state_dict()) for name, part in self.parts.items()}
            content = {"random": self._loop.state(), "kept": kept}
        best = {"kept": self._best, "position": {"step": position.best_step}}
        latest = content | {"position": asdict(position)}
        save_checkpoints(({self._best_file: best} if self._best_is_new else {}) | {self.latest: latest})
        self._best_is_new = self.is_wanted = False
        self._saved_at = time.perf_counter()
        self._took_s = self._saved_at - began
        self._meter.book(training=False)
        self._recording.event("checkpoint", path="checkpoint/latest.pt", **asdict(position.point))

    def check_weights(self) -> None:
        """Let no weights through that are not numbers: an error rate, for one, stays finite with them."""
        for module in self.modules.values():
            # a sum is a number only if all its terms are, and unlike isfinite() it makes no mask as large as a table
            tensors = [tensor for tensor in module.state_dict().values() if tensor.is_floating_point()]
            sums = [tensor.sum(dtype=torch.promote_types(tensor.dtype, torch.float32)) for tensor in tensors]
            if not all(math.isfinite(float(each)) for each in sums):
                raise self.diverged("a weight is no number", self._meter.position.point)

    def diverged(self, what: str, at: Point) -> Diverged:
        """The error of a run with a number that is none, which is recorded."""
        groups = [group for part in self.parts.values() for group in getattr(part, "param_groups", [])]
        lr = groups[0].get("lr") if groups else None
        rate = "" if lr is None else f" with learning rate {lr:g}"
        saved = f"{self.latest}, of step {step_of(self.latest)}" if self.latest.exists() else "none was saved yet"
        self._recording.event("fault", kind="diverged", what=what, lr=lr, checkpoint=saved, **asdict(at))
        return Diverged(
            f"{self._folder}: {what} at step {at.step}{rate}; last good checkpoint: {saved}. Lower the learning rate, "
            "or clip the gradients."
        )

"""Models and optimisers that a script keeps: when their checkpoints are saved, and the best weights."""

import math
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from labkit import UserError, runs
from labkit.tracking.ending import Diverged
from labkit.tracking.events import Point
from labkit.tracking.log import RunLog, load_checkpoint, save_checkpoints, step_of
from labkit.tracking.position import Loop, Meter
from labkit.tracking.watch import Watch

REST = 40
"""After a checkpoint that took t seconds there is none for 40 t, so checkpoints take at most 2.5 % of a run."""


class Kept:
    """The parts of a run that checkpoints hold. They are saved when the script is done with the steps so far."""

    def __init__(self, meter: Meter, loop: Loop, watch: Watch, log: RunLog):
        self._meter, self._loop, self._watch, self._log = meter, loop, watch, log
        self._position, self._folder = meter.position, log.folder
        self.latest, self._best_file = (self._folder / "checkpoint" / name for name in ("latest.pt", "best.pt"))
        self.parts: dict[str, Any] = {}
        self.restored: dict[str, Any] | None = None
        """States of a resumed run, by name, for the parts that the script will keep."""
        self._best: dict[str, dict[str, Any]] = {}
        self._best_is_new = False
        self._saved_at, self._took_s = time.perf_counter(), 0.0

    @property
    def modules(self) -> dict[str, Any]:
        """Parts that have parameters."""
        return {name: part for name, part in self.parts.items() if hasattr(part, "parameters")}

    @property
    def shared(self) -> list[Any]:
        """Parts whose `state_dict` all ranks call together, because each of them has a share of the state."""
        return [part for part in self.parts.values() if getattr(part, "saves_together", False)]

    def parameters(self) -> Iterator[Any]:
        for module in self.modules.values():
            yield from module.parameters()

    def add(self, name: str, part: Any) -> None:
        """Keep a part from here on. In a resumed run it gets its saved state."""
        if not (hasattr(part, "state_dict") and hasattr(part, "load_state_dict")):
            raise UserError(
                f"run.keep({name}=...): a {type(part).__name__} has no state_dict: pass a model, an optimiser, or "
                "another object with state_dict() and load_state_dict()."
            )
        if self.restored is not None:
            if name not in self.restored:
                raise UserError(
                    f"{self._folder}: its checkpoint has {', '.join(self.restored)} but no {name}, so another script "
                    "wrote it: resume with that script, or start a new run."
                )
            if not getattr(part, "saves_together", False):
                self._log.refuse_other_ranks()
            part.load_state_dict(self.restored[name])
        self.parts[name] = part
        if not getattr(part, "keeps_best", True) and self._position.keeps_best:
            self._position.keeps_best = False
            self._log.notice(f"{name} is too large for a copy of the best weights: the last weights will be tested")

    def resume(self) -> None:
        """Continue from the latest checkpoint. Models and optimisers follow when the script keeps them."""
        if self.latest.exists():
            content, position = load_checkpoint(self.latest), self._position
            self.restored, self._loop.resumed = content["kept"], content["random"]
            vars(position).update(content["position"])
            self._watch.resume(runs.read_events(self._folder))
            self._log.notice(f"continuing from step {position.step:,}, {position.samples:,} samples")

    def note_best(self) -> None:
        """Note that the current weights are the best."""
        if not self._position.keeps_best:
            return
        for name, module in self.modules.items():
            self._best.pop(name, None)  # first, so that there are never two copies
            self._best[name] = on_host(module.state_dict(), copied=True)
        self._best_is_new = bool(self._best)

    def load_best(self) -> None:
        """Load the best weights; if this process found none, those of an earlier process of this run."""
        if not self._best and self._best_file.exists():
            self._best = load_checkpoint(self._best_file)["kept"]
        for name, weights in self._best.items():
            self.parts[name].load_state_dict(weights)

    @property
    def has_rested(self) -> bool:
        """Whether the last checkpoint of this rank is long enough ago."""
        return time.perf_counter() - self._saved_at >= REST * self._took_s

    def at_safe_point(self, *, ends_here: bool = False) -> None:
        """Save a checkpoint if one is needed.

        With `ends_here` the loop ends within an epoch, and a resume starts from here, whatever the script does next.
        """
        if ends_here or (self._position.needs_checkpoint and (self.shared or self.has_rested)):
            self.save()
        self._position.is_frozen = self._position.is_frozen or ends_here

    def save(self) -> None:
        """Save the best weights, if they are new, and what a resume needs; nothing if nothing has changed."""
        if not (self.parts and self._meter.is_running and (self._log.saves or self.shared)):
            return
        position = self._position
        if position.is_frozen and not position.needs_checkpoint:
            return
        if not self._log.saves:  # the first rank writes the rest
            for part in self.shared if not position.is_frozen else ():
                part.state_dict()
            position.needs_checkpoint = False
            return
        began = time.perf_counter()
        # everything before this checkpoint goes to disk first, because a resume from it repeats no earlier step
        self._meter.read_losses(wait=True)
        if position.evaluated_step != position.step:
            self.check_weights()  # otherwise an evaluation has just done so
        self._loop.leave_epoch()
        self._log.flush()
        if position.is_frozen:
            content = load_checkpoint(self.latest)
        else:
            kept = {name: on_host(part.state_dict()) for name, part in self.parts.items()}
            content = {"random": self._loop.state(), "kept": kept}
        best = {"kept": self._best, "position": {"step": position.best_step}}
        latest = content | {"position": position.saved()}
        save_checkpoints(({self._best_file: best} if self._best_is_new else {}) | {self.latest: latest})
        self._best_is_new = position.needs_checkpoint = False
        self._saved_at = time.perf_counter()
        self._took_s = self._saved_at - began
        self._meter.book(training=False)
        self._log.event("checkpoint", path="checkpoint/latest.pt", **asdict(position.point))

    def check_weights(self) -> None:
        """Raise `Diverged` for weights that are not numbers; an error rate, for example, stays finite with them."""
        for module in self.modules.values():
            # a sum is finite only if all its terms are, and unlike isfinite() it needs no mask as large as a table
            tensors = [tensor for tensor in module.state_dict().values() if tensor.is_floating_point()]
            sums = [tensor.sum(dtype=torch.promote_types(tensor.dtype, torch.float32)) for tensor in tensors]
            if not all(math.isfinite(float(each)) for each in sums):
                raise self.diverged("a weight is not a number", self._position.point)

    def diverged(self, what: str, at: Point) -> Diverged:
        """Record a number that is NaN or infinite, and return the error for it."""
        groups = [group for part in self.parts.values() for group in getattr(part, "param_groups", [])]
        lr = groups[0].get("lr") if groups else None
        rate = "" if lr is None else f" with learning rate {lr:g}"
        saved = f"{self.latest}, of step {step_of(self.latest)}" if self.latest.exists() else "none yet"
        self._log.event("fault", kind="diverged", what=what, lr=lr, checkpoint=saved, **asdict(at))
        return Diverged(
            f"{self._folder}: {what} at step {at.step}{rate}; last good checkpoint: {saved}. Lower the learning rate, "
            "or clip the gradients."
        )


def on_host(state: Any, *, copied: bool = False) -> Any:
    """A state dict with its tensors on the CPU; with `copied`, tensors already there are copied too."""
    return tree_map_only(torch.Tensor, lambda tensor: tensor.detach().to("cpu", copy=copied), state)

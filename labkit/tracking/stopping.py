"""When and why a run is over, as functions of its position: as a word, and as a sentence."""

from __future__ import annotations

from collections.abc import Callable

from labkit import UserError, runs
from labkit.tracking.ending import Diverged, Enough, Stopped
from labkit.tracking.goal import Goal
from labkit.tracking.position import Position


class Stopping:
    """What ends a run: a stop request, its target, its time, its epochs, its patience."""

    def __init__(self, position: Position, goal: Goal, stopped_by: Callable[[], str]):
        """`stopped_by` returns who asked the run to stop, or an empty text."""
        import torch.distributed as dist

        self._position, self._goal, self.stopped_by = position, goal, stopped_by
        self._are_several = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1

    def agree(self) -> None:
        """Let several ranks take the first one's reason.

        Their clocks differ, and a rank that left its loop alone would let the others hang.
        """
        if self._are_several:
            from torch.distributed import broadcast_object_list

            words = [self._own_reason()]
            broadcast_object_list(words, src=0)
            self._position.agreed = words[0]

    @property
    def over(self) -> str:
        """The value of `Run.over`."""
        return self._position.agreed if self._are_several else self._own_reason()

    def _own_reason(self) -> str:
        if self._position.seen_enough:
            return "profiled"
        if self.stopped_by():
            return "stopped"
        if "sustained" in self._position.crossed:
            return "target"
        if self._is_late:
            return "max_seconds"
        if self._position.num_epochs is not None and self._position.epoch >= self._position.num_epochs:
            return "max_epochs"
        return "patience" if self._goal.is_out_of_patience(self._position.best_age) else ""

    @property
    def out_of_time(self) -> bool:
        """Whether the time limit asks for a last evaluation; several ranks evaluate together, so they agree first."""
        return self._is_late and (not self._are_several or bool(self._position.agreed))

    @property
    def _is_late(self) -> bool:
        """Whether the time limit is reached by this rank's clock."""
        return self._goal.max_seconds is not None and self._position.wall_s >= self._goal.max_seconds

    def ending_of(
        self, error: BaseException | None, why: Callable[[BaseException], str]
    ) -> tuple[runs.Status, str, str]:
        """Status, word and sentence for a run whose block ended with that error; `why` describes unknown errors."""
        if error is None or isinstance(error, Stopped):
            word = self.over or "script"
            return ("stopped" if word == "stopped" else "done"), word, self.sentence(word)
        if isinstance(error, Enough):
            return "done", "profiled", "profiled"
        if isinstance(error, KeyboardInterrupt):
            return "stopped", "stopped", self.stopped_by() or "stopped by Ctrl-C"
        if isinstance(error, SystemExit):
            clean = error.code in (None, 0)
            return ("done" if clean else "failed"), "exit", f"the script ended by sys.exit({error.code!r})"
        if isinstance(error, Diverged):
            return "failed", "diverged", str(error)
        if isinstance(error, UserError):
            # for example a full disk: the run itself is sound, and can go on once that is fixed
            return ("stopped" if self._position.step else "failed"), "refused", str(error)
        return "failed", "error", why(error)

    def sentence(self, word: str) -> str:
        """The reason as a sentence."""
        target, position = self._goal.target, self._position
        if word == "stopped":
            return self.stopped_by()
        if word == "target":
            return "target reached"
        if word == "max_seconds":
            most_s, took_s = self._goal.max_seconds, position.wall_s
            late = f", at {took_s:.1f} s: a step or an evaluation took longer" if took_s > 1.5 * most_s + 1 else ""
            return f"max_seconds {most_s:g} used up{late}"
        if word == "patience":
            return f"no better {target.metric.label} in {self._goal.patience} evaluations"
        if word == "profiled":
            return word
        sentence = f"max_epochs {position.epoch} trained" if word == "max_epochs" else "the script ended"
        if target is not None and position.evaluated_step < 0:
            name = target.metric.name
            sentence += f", and {name} was never evaluated: call run.evaluate({name}=...) each epoch"
        return sentence

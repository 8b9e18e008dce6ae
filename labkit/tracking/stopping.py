"""Why a run is over, in a word and in a sentence."""

from __future__ import annotations

from collections.abc import Callable

from labkit.errors import UserError
from labkit.tracking.ending import Diverged, Enough, Stopped
from labkit.tracking.evaluations import Evaluations
from labkit.tracking.loop import Loop


class StoppingCriteria:
    """What ends a run: a stop, its target, its time, its epochs, its patience."""

    def __init__(self, loop: Loop, evaluations: Evaluations, stopped_by: Callable[[], str]):
        """`stopped_by` says who asks the run to stop; empty where nobody does."""
        self._position, self._evaluations, self._loop = evaluations.position, evaluations, loop
        self._goal, self.stopped_by = evaluations.goal, stopped_by
        self.seen_enough = False
        """Whether who looked at the steps has seen enough: a script that catches `Enough` is ended all the same"""
        import torch.distributed as dist

        self._are_several = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
        self._agreed = ""
        """Of several ranks: why the run is over, as the first found at the latest evaluation"""

    def agree(self) -> None:
        """Take the first rank's word: clocks differ, and a rank that left its loop alone would let the others hang."""
        if self._are_several:
            from torch.distributed import broadcast_object_list

            words = [self._found()]
            broadcast_object_list(words, src=0)
            self._agreed = words[0]

    @property
    def over(self) -> str:
        """The word of `Run.over`."""
        return self._agreed if self._are_several else self._found()

    def _found(self) -> str:
        if self.seen_enough:
            return "profiled"
        if self.stopped_by():
            return "stopped"
        if "sustained" in self._evaluations.crossed:
            return "target"
        if self._is_late:
            return "max_seconds"
        if self._loop.num_epochs is not None and self._position.epoch >= self._loop.num_epochs:
            return "max_epochs"
        return "patience" if self._evaluations.out_of_patience else ""

    @property
    def out_of_time(self) -> bool:
        """Whether the time asks for a last evaluation; several ranks have to agree first, as all evaluate together."""
        return self._is_late and (not self._are_several or bool(self._agreed))

    @property
    def _is_late(self) -> bool:
        """Whether the time is used up by the clock of this rank."""
        within = self._goal.max_seconds is None or self._position.wall_s < self._goal.max_seconds
        return not within

    def ending_of(self, error: BaseException | None, why: Callable[[BaseException], str]) -> tuple[str, str, str]:
        """(status, word, sentence) of a run whose block was left with that error; `why` words one that is not ours."""
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
            # a full disk, say: the run itself is sound and can go on once that is mended
            return ("stopped" if self._position.step else "failed"), "refused", str(error)
        return "failed", "error", why(error)

    def sentence(self, word: str) -> str:
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

"""How a run ends: who asks it to, why, in a word and a sentence, what is raised for it, and the exit status."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

from labkit.errors import UserError

if TYPE_CHECKING:
    from labkit.tracking.evaluations import Evaluations
    from labkit.tracking.schedule import Schedule

EXIT_STOPPED = 130
"""What a shell expects of a program that Ctrl-C ended."""


class StopRequest:
    """A request to stop, from a signal or from code; use as a context manager to listen to signals.

    A second Ctrl-C raises KeyboardInterrupt at once, for a run that hangs.
    """

    def __init__(self):
        self.reason: str | None = None
        self._before: dict[int, object] = {}

    def __bool__(self) -> bool:
        return self.reason is not None

    def request(self, reason: str) -> None:
        self.reason = self.reason or reason

    def __enter__(self) -> StopRequest:
        # only the main thread may install handlers; a notebook's or a test's thread stops by request()
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *exception) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.reason is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.request(signal.Signals(number).name)


class RunFailed(UserError):
    """A run diverged, or was cut short by what its user can mend; what it was until then is in its folder."""

    def __init__(self, text: str, answer: dict[str, Any] | None = None):
        super().__init__(text)
        self.answer = answer or {}
        """`{"run", "folder", "status", "result"}`, its status "failed" or "stopped"."""


class Diverged(RunFailed):
    """A loss, a metric or a weight is no longer a number."""


class Stopped(BaseException):
    """A stop was asked for and the script's loop is none that `Run` could end; no `except Exception` holds it up."""


class Enough(BaseException):
    """Whoever looked at the steps has seen enough."""


def unreached(status: str, result: dict[str, Any], max_seconds: float | None) -> str:
    """What a run is, by its record, for a target that it did not reach: "failed", it never would have, or "censored".

    A run has failed that diverged, broke, ran out of patience, or came to the end of its epochs or of its script. It
    is censored where something else cut it off: a stop, a kill, its time limit, its own target where a harder one is
    asked for; or where it still runs. Runs of an older labkit lack `ended_by`.
    """
    if status == "failed":
        return "failed"
    if status != "done":
        return "censored"
    ended_by = result.get("ended_by")
    if ended_by is None and result.get("target_reached"):
        ended_by = "target"
    if ended_by is None and max_seconds is not None and (result.get("wall_s") or 0.0) >= max_seconds:
        ended_by = "max_seconds"
    return "censored" if ended_by in ("target", "max_seconds", "profiled") else "failed"


class Limits:
    """What ends a run: a stop, its target, its time, its epochs, its patience."""

    def __init__(
        self, schedule: Schedule, evaluations: Evaluations, max_seconds: float | None, stopped_by: Callable[[], str]
    ):
        """`stopped_by` says who asks the run to stop; empty where nobody does."""
        self._position, self._evaluations, self._schedule = evaluations.position, evaluations, schedule
        self.max_seconds, self.stopped_by = max_seconds, stopped_by
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
        if self.out_of_time:
            return "max_seconds"
        if self._schedule.num_epochs is not None and self._position.epoch >= self._schedule.num_epochs:
            return "max_epochs"
        return "patience" if self._evaluations.out_of_patience else ""

    @property
    def out_of_time(self) -> bool:
        within = self.max_seconds is None or self._position.wall_s < self.max_seconds
        return not within and (not self._are_several or bool(self._agreed))

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
        target, position = self._evaluations.target, self._position
        if word == "stopped":
            return self.stopped_by()
        if word == "target":
            return "target reached"
        if word == "max_seconds":
            return f"max_seconds {self.max_seconds:g} used up"
        if word == "patience":
            return f"no better {target.metric.label} in {self._evaluations.patience} evaluations"
        if word == "profiled":
            return word
        sentence = f"max_epochs {position.epoch} trained" if word == "max_epochs" else "the script ended"
        if target is not None and position.evaluated_step < 0:
            name = target.metric.name
            sentence += f", and {name} was never evaluated: call run.evaluate({name}=...) each epoch"
        return sentence


def in_notebook() -> bool:
    """Whether the code was typed into a notebook or IPython."""
    ipython = sys.modules.get("IPython")  # which a script may import without running in it
    return ipython is not None and ipython.get_ipython() is not None


def write_last_word(reason: str, *, killed: bool, folder: str | None = None, events: int | None = None) -> None:
    """End the record of a run that its process could not end; the watch over the process' memory calls this.

    `killed` says whether the process could tell nothing itself, `folder` the last run that it began, and `events` is
    the file descriptor that a worker's events go to.
    """
    from labkit.runs.writer import fail_killed

    answer = None if folder is None else fail_killed(folder, reason)
    if events is not None and (killed or answer is not None):
        told = {"kind": "Failed", "status": "out_of_memory", "reason": reason, "answer": answer, "refused": True}
        os.write(events, json.dumps(told).encode() + b"\n")

"""How a run ends: the word for it, the sentence for it, and what the process that ran it exits with."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from labkit.errors import UserError

if TYPE_CHECKING:
    from labkit.tracking.harness import Harness
    from labkit.tracking.run import Run

EXIT_STOPPED = 130
"""What a shell expects of a program that Ctrl-C ended."""


class RunFailed(UserError):
    """A run diverged, or was cut short by what its user can mend; what it was until then is in its folder."""

    def __init__(self, text: str, answer: dict[str, Any] | None = None):
        super().__init__(text)
        self.answer = answer or {}
        """`{"run", "folder", "status", "result"}`, its status "failed" or "stopped"."""


class Diverged(RunFailed):
    """A loss, a metric or a weight is no longer a number."""

    def __init__(self, text: str, run: Run):
        super().__init__(text)
        self.run = run


class Stopped(BaseException):
    """A stop was asked for and the script's loop is none that `Run` could end; no `except Exception` holds it up."""


class Enough(BaseException):
    """Whoever looked at the steps has seen enough."""


def ending_of(error: BaseException | None, run: Run, why: Callable[[BaseException], str]) -> tuple[str, str, str]:
    """(status, word, reason) of a run whose block was left with that error; an empty reason is `reason_text`'s."""
    if error is None or isinstance(error, Stopped):
        word = run.over or "script"
        return ("stopped" if word == "stopped" else "done"), word, ""
    if isinstance(error, Enough):
        return "done", "profiled", ""
    if isinstance(error, KeyboardInterrupt):
        return "stopped", "stopped", "stopped by Ctrl-C"
    if isinstance(error, SystemExit):
        clean = error.code in (None, 0)
        return ("done" if clean else "failed"), "exit", f"the script ended by sys.exit({error.code!r})"
    if isinstance(error, Diverged):
        return "failed", "diverged", str(error)
    if isinstance(error, UserError):
        # a full disk, say: the run itself is sound and can go on once that is mended
        return ("stopped" if run.position.step else "failed"), "refused", str(error)
    return "failed", "error", why(error)


def reason_text(word: str, run: Run) -> str:
    """The sentence for a word of `Run.over`."""
    sentence = _sentence(word, run)
    if word in ("script", "max_epochs") and run.target is not None and run.position.evaluated_step < 0:
        name = run.target.metric.name
        sentence += f", and {name} was never evaluated: call run.evaluate({name}=...) each epoch"
    return sentence


def _sentence(word: str, run: Run) -> str:
    if word == "stopped":
        return run.stop_reason
    if word == "target":
        return "target reached"
    if word == "max_seconds":
        return f"max_seconds {run.max_seconds:g} used up"
    if word == "max_epochs":
        return f"max_epochs {run.position.epoch} trained"
    if word == "patience":
        return f"no better {run.target.metric.label} in {run.patience} evaluations"
    return {"script": "the script ended", "profiled": "profiled"}[word]


def exit_after_stop(harness: Harness) -> None:
    """End a script that was stopped with the status that a shell expects; a notebook goes on, and so does a harness."""
    if harness.is_script and not hasattr(sys, "ps1") and "ipykernel" not in sys.modules:
        raise SystemExit(EXIT_STOPPED)

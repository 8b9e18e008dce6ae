"""How a run can end early: what is raised for it, and what the process that ran it exits with."""

from __future__ import annotations

import sys
from typing import Any

from labkit.errors import UserError

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


class Stopped(BaseException):
    """A stop was asked for and the script's loop is none that `Run` could end; no `except Exception` holds it up."""


class Enough(BaseException):
    """Whoever looked at the steps has seen enough."""


def exit_after_stop(is_script: bool) -> None:
    """End a script that was stopped with the status that a shell expects; a notebook goes on, and so does a harness.

    Args:
        is_script: whether nobody wraps the script.
    """
    if is_script and not hasattr(sys, "ps1") and not in_notebook():
        raise SystemExit(EXIT_STOPPED)


def in_notebook() -> bool:
    """Whether the code was typed into a notebook or IPython."""
    ipython = sys.modules.get("IPython")  # which a script may import without running in it
    return ipython is not None and ipython.get_ipython() is not None

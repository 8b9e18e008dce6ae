"""How a run can end early: what is raised for it, and what the process that ran it exits with."""

from __future__ import annotations

import json
import os
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


def unreached(status: str, result: dict[str, Any], max_seconds: float | None) -> str:
    """What a run is for a target that it did not reach: "failed", which it would never have reached, or "censored".

    A run has failed that diverged, broke, ran out of patience, or came to the end of its epochs or of its script. It
    is censored where something else cut it off: a stop, a kill, its time limit, its own target where a harder one is
    asked for; or where it still runs.

    Args:
        status: of its record.
        result: of its record; runs of an older labkit lack `ended_by` in it.
        max_seconds: its time limit.
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


def in_notebook() -> bool:
    """Whether the code was typed into a notebook or IPython."""
    ipython = sys.modules.get("IPython")  # which a script may import without running in it
    return ipython is not None and ipython.get_ipython() is not None


def write_last_word(reason: str, *, killed: bool, folder: str | None = None, events: int | None = None) -> None:
    """End the record of a run that its process could not end; the watch over the process' memory calls this.

    Args:
        reason: a sentence.
        killed: whether the process was, and could tell nothing itself.
        folder: of the last run that the process began.
        events: the file descriptor that a worker's events go to.
    """
    from labkit.runs.writer import fail_killed

    answer = None if folder is None else fail_killed(folder, reason)
    if events is not None and (killed or answer is not None):
        told = {"kind": "Failed", "status": "out_of_memory", "reason": reason, "answer": answer, "refused": True}
        os.write(events, json.dumps(told).encode() + b"\n")

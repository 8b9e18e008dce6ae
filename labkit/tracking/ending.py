"""How a run ends: who asks it to, what is raised for it, the exit status, and what an unreached target then means."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from types import FrameType
from typing import Any

from labkit.errors import UserError

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


def in_notebook() -> bool:
    """Whether the code was typed into a notebook or IPython."""
    ipython = sys.modules.get("IPython")  # which a script may import without running in it
    return ipython is not None and ipython.get_ipython() is not None


def close_record(reason: str, *, killed: bool, folder: str | None = None, events: int | None = None) -> None:
    """End the record of a run that its process could not end; the watch over the process' memory calls this.

    `killed` says whether the process could tell nothing itself, `folder` the last run that it began, and `events` is
    the file descriptor that a worker's events go to.
    """
    from labkit.runs import fail_killed

    answer = None if folder is None else fail_killed(folder, reason)
    if events is not None and (killed or answer is not None):
        told = {"kind": "Failed", "status": "out_of_memory", "reason": reason, "answer": answer, "refused": True}
        os.write(events, json.dumps(told).encode() + b"\n")

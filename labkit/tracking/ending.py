"""How a run ends: stop requests, the exceptions for it, the exit status, and what an unreached target then means."""

import json
import os
import re
import signal
import sys
import threading
import traceback
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from labkit import UserError, errors, runs

EXIT_STOPPED = 130
"""Exit status that a shell expects of a program ended by Ctrl-C."""
CLOSE_RECORD = "labkit.tracking.ending:close_record"
"""`close_record` as text, for the memory watch, which imports it only when it has to end a run."""


class StopRequest:
    """A request to stop, from a signal or from code. As a context manager it listens to signals.

    A second Ctrl-C raises KeyboardInterrupt at once, for a run that hangs.
    """

    def __init__(self):
        self.reason: str | None = None
        self._before: dict[int, Any] = {}

    def __bool__(self) -> bool:
        return self.reason is not None

    def request(self, reason: str) -> None:
        self.reason = self.reason or reason

    def __enter__(self) -> "StopRequest":
        # only the main thread may install handlers; other threads are stopped by request()
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


def is_cut_off(error: BaseException | None) -> bool:
    """Whether a rank lost its connection to another one, which then is the one to look at."""
    if not isinstance(error, RuntimeError):
        return False
    is_torchs = any(kind.__name__ == "DistError" for kind in type(error).__mro__)
    return is_torchs or re.search(r"gloo|nccl|connection (closed|reset)|broken pipe", str(error).lower()) is not None


class RunFailed(UserError):
    """A run diverged, or was cut short for a reason that the user can fix; its folder has what it did until then."""

    def __init__(self, text: str, answer: dict[str, Any] | None = None):
        super().__init__(text)
        self.answer = answer or {}
        """`{"run", "folder", "status", "result"}`, its status "failed" or "stopped"."""


class Diverged(RunFailed):
    """A loss, a metric or a weight is NaN or infinite."""


def script_frames(error: BaseException) -> TracebackType | None:
    """The traceback of an error of a script, from its own first frame on."""
    frames = error.__traceback__
    while frames is not None and "runpy" not in frames.tb_frame.f_code.co_filename:
        frames = frames.tb_next
    while frames is not None and "runpy" in frames.tb_frame.f_code.co_filename:
        frames = frames.tb_next
    return frames or error.__traceback__


def script_refusal(error: BaseException) -> UserError | None:
    """What the system refused to a script, with its line; None for any other error, such as a path that is not there.

    The script itself is sound: once that is fixed, its run can go on.
    """
    if (refused := errors.refusal(error, but=errors.MISTAKES)) is None:
        return None
    frames = traceback.extract_tb(script_frames(error))
    own = [frame for frame in frames if frame.filename == frames[0].filename]
    place = f"{Path(own[-1].filename).name}, line {own[-1].lineno}: " if own else ""
    return UserError(f"{place}{refused}")


class Stopped(BaseException):
    """A stop was requested, and the script has no loop that `Run` could end. `except Exception` does not catch it."""


class Enough(BaseException):
    """The observer has seen enough steps."""


def in_notebook() -> bool:
    """Whether the code was typed into a notebook or IPython."""
    ipython = sys.modules.get("IPython")  # a script may import it without running in it
    return ipython is not None and ipython.get_ipython() is not None


def close_record(reason: str, *, killed: bool, folder: str | None = None, events: int | None = None) -> None:
    """End the record of a run whose process could not do so; the memory watch calls this (`CLOSE_RECORD`).

    Args:
        reason: why it ended, as a sentence.
        killed: whether the process was killed, so that it could send nothing itself.
        folder: the last run that it started.
        events: file descriptor for the events of a worker.
    """

    answer = None if folder is None else runs.fail_killed(folder, reason)
    if events is not None and (killed or answer is not None):
        failed = {"kind": "Failed", "status": "out_of_memory", "reason": reason, "answer": answer, "refused": True}
        os.write(events, json.dumps(failed).encode() + b"\n")

"""A polite stop: Ctrl-C and SIGTERM end a run after the step under way, with everything saved."""

from __future__ import annotations

import signal
import threading
from types import FrameType


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

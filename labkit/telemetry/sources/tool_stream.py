"""A command that prints a line or more for every sample, read beside the sampler and ended with it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence

STALE_PERIODS = 3
"""What is older than so many periods is not told as now."""
PATIENCE_S = 2.0
"""For the command to end when asked."""
RESTART_S = 10.0
"""A command that ended is started again so long after its last start."""


class NoCommand(Exception):
    """A command cannot be given yet, and why."""


class ToolStream:
    """Keeps the latest lines of a command, which is started at once where it is on PATH, and again where it ends."""

    def __init__(self, tool: str, arguments: Callable[[ToolStream], Sequence[str]], *, period_s: float, keep: int):
        """Start a tool in a thread of its own.

        Args:
            tool: its name.
            arguments: gives its arguments before each start; may `ask` the tool, and may raise `NoCommand`.
            period_s: it prints so often.
            keep: how many of its latest lines are kept.
        """
        self._tool, self._arguments, self._period_s = tool, arguments, period_s
        self._lines: deque[str] = deque(maxlen=keep)
        self._heard_at = 0.0
        self._process: subprocess.Popen | None = None
        self._status: int | None = None
        self._closing = threading.Event()
        self.why: str | None = f"{tool} has said nothing yet"
        """Why there are no lines; None where they come."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        if shutil.which(tool) is None:
            self.why = f"{tool} is not on PATH"
        else:
            self._thread.start()

    def lines(self) -> list[str]:
        """The latest lines, oldest first; none where the command says nothing any more, and `why` says so."""
        lines = list(self._lines)
        if lines and time.monotonic() - self._heard_at > max(1.0, STALE_PERIODS * self._period_s):
            self.why = f"{self._tool} says nothing"
            return []
        return lines

    def ask(self, arguments: Sequence[str]) -> list[str]:
        """All that the tool says when it is called so."""
        return list(self._say(arguments))

    def close(self) -> None:
        """End the command."""
        self._closing.set()
        for number in (signal.SIGTERM, getattr(signal, "SIGKILL", signal.SIGTERM)):
            if not self._thread.is_alive():
                break
            if process := self._process:
                with contextlib.suppress(ProcessLookupError):
                    if hasattr(os, "killpg"):
                        os.killpg(process.pid, number)
                    else:
                        process.send_signal(number)
            self._thread.join(PATIENCE_S)

    def _run(self) -> None:
        while not self._closing.is_set():
            began, last = time.monotonic(), ""
            try:
                for line in self._say(self._arguments(self)):
                    self._heard_at, self.why, last = time.monotonic(), None, line
                    self._lines.append(line)
                self._lines.clear()
                self.why = f"{self._tool} ended with status {self._status}{last and f': {last}'}"
            except NoCommand as reason:
                self.why = str(reason)
            except OSError as error:
                self.why = f"{self._tool} does not start: {error.strerror}"
            self._closing.wait(began + RESTART_S - time.monotonic())

    def _say(self, arguments: Sequence[str]) -> Iterator[str]:
        if self._closing.is_set():
            return
        with subprocess.Popen(
            [self._tool, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # a script around the tool leaves nothing behind either
        ) as process:
            self._process = process
            yield from filter(None, map(str.rstrip, process.stdout))
            self._process, self._status = None, process.wait()

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
from collections.abc import Callable, Sequence

STALE_PERIODS = 3
"""What is older than so many periods is not told as now."""
PATIENCE_S = 2.0
"""For the command to end when asked."""
RESTART_S = 10.0
"""A command that ended is started again so long after its last start."""


class ToolStream:
    """Keeps the latest lines of a command, which is started at once where it is on PATH, and again where it ends."""

    def __init__(
        self, command: Sequence[str], *, period_s: float, keep: int, now: Callable[[], float] = time.monotonic
    ):
        """Start `command`, which prints every `period_s` seconds; the latest `keep` lines are kept."""
        self._name, self._arguments, self._period_s, self._now = command[0], command[1:], period_s, now
        self._lines: deque[str] = deque(maxlen=keep)
        self._process: subprocess.Popen | None = None
        self.why: str | None = None
        """Why there are no lines; None where they come."""
        self._path = shutil.which(self._name)
        if self._path is None:
            self.why = f"{self._name} is not on PATH"
        else:
            self._start()

    def _start(self) -> None:
        self._started_at = self._heard_at = self._now()
        self._lines.clear()
        try:
            self._process = subprocess.Popen(
                [self._path, *self._arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,  # a script around the tool leaves nothing behind either
            )
        except OSError as error:
            self.why = f"{self._name} does not start: {error.strerror}"
            return
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    def lines(self) -> list[str]:
        """The latest lines, oldest first; none where the command says nothing any more, and `why` says so."""
        if self._process is None:
            return []
        if not self._is_running():
            said = f": {self._lines[-1]}" if self._lines else ""
            self.why = f"{self._name} ended with status {self._process.returncode}{said}"
            if self._now() - self._started_at > RESTART_S:
                self._process.stdout.close()  # its reader has ended
                self._start()
            return []
        if self._now() - self._heard_at > max(1.0, STALE_PERIODS * self._period_s):
            self.why = f"{self._name} says nothing"
            return []
        self.why = None
        return list(self._lines)

    def lines_of_ended(self) -> list[str] | None:
        """All that the command said, once it has ended; None until then. Where it never started, `why` says so."""
        if self._process is None:
            return []
        return None if self._is_running() else list(self._lines)

    def close(self) -> None:
        """End the command."""
        if self._process is None:
            return
        for number in (signal.SIGTERM, getattr(signal, "SIGKILL", signal.SIGTERM)):
            if not self._is_running():
                break
            with contextlib.suppress(ProcessLookupError):
                if hasattr(os, "killpg"):
                    os.killpg(self._process.pid, number)
                else:
                    self._process.send_signal(number)
            self._reader.join(PATIENCE_S)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(PATIENCE_S)
        if not self._reader.is_alive():  # else closing would wait for it
            self._process.stdout.close()

    def _is_running(self) -> bool:
        """Whether the command runs, or something that it started still holds its output."""
        return self._process.poll() is None or self._reader.is_alive()

    def _listen(self) -> None:
        for line in self._process.stdout:
            self._heard_at = self._now()
            if line.strip():
                self._lines.append(line.rstrip("\n"))

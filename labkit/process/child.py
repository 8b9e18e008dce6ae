"""A program of ours in a process of its own: JSON lines both ways, and an end that is waited for, but not for ever.

The one who starts it has a `Child`, the program a `Parent`. The first line in says what the program is to do; those
after it are orders; the end of its input, because its parent is done or was killed, asks it to stop. What it tells are
objects whose "kind" says what they are.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from labkit.process.containment import PARENT, die_with, end_killed, kill_session

OUT_OF_CTRL_C = (
    {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP} if sys.platform == "win32" else {"start_new_session": True}
)
"""Options of `subprocess.Popen` that keep the terminal's Ctrl-C from a child: its parent decides what to stop."""
GRACE_S, TERM_S = 30.0, 3.0
"""A child that is to end has this long to save what it has; then SIGTERM, and this long later SIGKILL."""


class Child:
    """A program under way in another process; a context manager that leaves no process behind."""

    def __init__(
        self,
        module: str,
        content: Any = None,
        *,
        environment: Mapping[str, str] | None = None,
        shows_errors: bool = False,
        log: str | None = None,
        grace_s: float = GRACE_S,
    ):
        """Describe it; entering the block starts it.

        Args:
            module: what `python -m` is to run; it has a `Parent`.
            content: what it is to do, JSON-able.
            environment: beside this process' own; an empty value takes a variable away.
            shows_errors: its standard error is this process'; else `stderr_tail` has it.
            log: file that its standard error goes to.
            grace_s: what it has to end by itself.
        """
        self._command = [sys.executable, "-m", module]
        self._content, self._environment = content, environment or {}
        self._shows_errors, self._log, self._grace_s = shows_errors, log, grace_s
        self._told: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()

    def start(self):
        """Start it, and return this."""
        self._errors = Path(self._log).open("a+b") if self._log else tempfile.TemporaryFile()  # noqa: SIM115  see `end`
        environment = {**os.environ, **self._environment}
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if self._shows_errors else self._errors,
            env={name: value for name, value in environment.items() if self._environment.get(name) != ""},
            **OUT_OF_CTRL_C,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        self.send(self._content)
        return self

    def __enter__(self):
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.end()

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, message: Any) -> None:
        """Give an order; one that has ended says so where it is listened to."""
        with contextlib.suppress(OSError, ValueError):
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()

    def next_message(self, timeout_s: float | None = None) -> dict[str, Any] | None:
        """What it tells next; None where it tells nothing in time.

        Raises:
            EOFError: it has ended, or closed its output.
        """
        try:
            message = self._told.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if message is None:
            self._told.put(None)
            raise EOFError
        return message

    def messages(self) -> Iterator[dict[str, Any]]:
        """All that it tells, to its end."""
        with contextlib.suppress(EOFError):
            while True:
                yield self.next_message()

    def stderr_tail(self, characters: int = 4000) -> str:
        """The end of what it has printed to its standard error so far."""
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")[-characters:]

    def status(self) -> int | None:
        """What a child that has closed its output ends with, below 0 a signal's number; None where it does not end."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(self._grace_s)
        return self._process.poll()

    def stop(self) -> None:
        """Ask it to end."""
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()

    def end(self) -> None:
        """Ask it to end, and see to it that it does: by SIGTERM, and then by SIGKILL."""
        ended = False
        try:
            ended = self._shut_down()
        finally:
            if not ended:
                self.kill()
                kill_session(self.pid)
                end_killed(self._process)
            self._errors.close()

    def _shut_down(self) -> bool:
        """As long as it does not end: ask it to, send SIGTERM, send SIGKILL; whether it ended without the last."""
        self.stop()
        for timeout_s, more in ((self._grace_s, self._terminate), (TERM_S, self._process.kill)):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout_s)
                return True
            more()
        return False

    def _terminate(self) -> None:
        """Send SIGTERM to all of its group: what it started may have something to save, too."""
        if sys.platform == "win32":
            self._process.terminate()
        else:
            with contextlib.suppress(OSError):
                os.killpg(self.pid, signal.SIGTERM)

    def _hear(self, message: dict[str, Any]) -> None:
        self._told.put(message)

    def _listen(self) -> None:
        with self._process.stdout as stream:
            for line in stream:
                with contextlib.suppress(ValueError):  # of what else is printed to the pipe
                    message = json.loads(line)
                    if isinstance(message, dict) and "kind" in message:
                        self._hear(message)
        self._told.put(None)


class Parent:
    """The program's side: from here on what libraries print goes to standard error, and standard input is empty."""

    def __init__(self):
        if pid := os.environ.pop(PARENT, None):  # what this process starts has another parent
            die_with(int(pid))
        self.content: Any = json.loads(_first_line())
        """What is to be done."""
        self.inlet, self.outlet = os.dup(0), os.dup(1)
        """File descriptors of the orders and of what is told."""
        os.dup2(2, 1)
        with Path(os.devnull).open() as nothing:
            os.dup2(nothing.fileno(), 0)
        self._messages, self._lock = os.fdopen(self.outlet, "w", encoding="utf-8"), threading.Lock()

    def tell(self, kind: str, **content: Any) -> None:
        with contextlib.suppress(OSError), self._lock:  # where the parent is gone, so is this process in a moment
            self._messages.write(json.dumps({"kind": kind, **content}) + "\n")
            self._messages.flush()

    def listen(
        self, hear: Callable[[dict[str, Any]], None] = lambda order: None, at_end: Callable[[], None] = lambda: None
    ) -> None:
        """Call `hear` with each order and `at_end` at the end of all, in a thread of its own."""

        def wait() -> None:
            heard = b""
            while chunk := os.read(self.inlet, 2**16):  # not through a buffer, whose lock would be held at exit
                *lines, heard = (heard + chunk).split(b"\n")
                for line in lines:
                    hear(json.loads(line))
            at_end()

        threading.Thread(target=wait, daemon=True).start()


def _first_line() -> bytes:
    """The first line of standard input, and not a byte more: what follows are orders."""
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(0, 1)):
        line += byte
    return line

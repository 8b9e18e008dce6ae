"""A program of ours in a process of its own: JSON lines both ways, and an end that is waited for, within limits.

The process that starts it has a `Child`; the program has a `Parent`. The first line of input says what to do; later
lines are orders. The end of its input, because its parent is done or was killed, asks it to stop. Its output is a
series of objects whose "kind" says what they are.
"""

import contextlib
import io
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from labkit import errors
from labkit.process import forking, template
from labkit.process.containment import PARENT, die_with, end_killed, kill_session

OUT_OF_CTRL_C: dict[str, Any] = (
    {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP} if sys.platform == "win32" else {"start_new_session": True}
)
"""Options of `subprocess.Popen` that keep the terminal's Ctrl-C from a child: its parent decides what to stop."""
CONTENT = "LABKIT_CONTENT"
"""Environment variable with the descriptor of the first line, which may be long, in a program that starts again cold"""
GRACE_S, TERM_S = 30.0, 3.0
"""Seconds for a child to save what it has before SIGTERM; seconds between SIGTERM and SIGKILL."""


class Child:
    """A program running in another process: a context manager that leaves no process behind."""

    def __init__(
        self,
        module: str,
        content: Any = None,
        *,
        environment: Mapping[str, str] | None = None,
        log: str | None = None,
        grace_s: float = GRACE_S,
        warm: bool = True,
        within: Sequence[str] = (),
    ):
        """Describe the program; entering the block starts it.

        Args:
            module: module for `python -m`, which has a `Parent`.
            content: what it is to do, JSON-able.
            environment: variables added to this process' own; an empty value removes a variable.
            log: file for its standard error, which `stderr_tail` reads; if empty, it goes to that of this process.
            grace_s: seconds that it has to end by itself.
            warm: whether this process' template forks it, if there is one and it has what the program imports.
            within: command that starts it, such as that of a sandbox; empty for none.
        """
        self._module, self._warm = module, warm and module.startswith("labkit.")
        self._command = [*within, sys.executable, "-m", module]
        self._content, self._environment = content, environment or {}
        self._log, self._grace_s = log, grace_s
        self._inbox: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()

    def start(self):
        """Start it, and return self.

        Raises:
            UserError: the system allows no more processes or threads.
        """
        self._errors = Path(self._log).open("a+b") if self._log else tempfile.TemporaryFile()  # noqa: SIM115  see `end`
        environment = {**os.environ, **self._environment}
        environment = {name: value for name, value in environment.items() if self._environment.get(name) != ""}
        with errors.refusals():
            self._process = self._fork(environment) or subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=None if self._log == "" else self._errors,
                env=environment,
                **OUT_OF_CTRL_C,
            )
            self._listener = threading.Thread(target=self._listen, daemon=True)
            try:
                self._listener.start()
            except RuntimeError:  # no thread may be started
                self._process.kill()
                self._process.wait()
                raise
        self.send(self._content)
        return self

    def _fork(self, environment: dict[str, str]) -> "template.ForkedProcess | None":
        """Start it warm; None if there is no template for it."""
        own = template.own_template() if self._warm else None
        if own is None:
            return None
        its_in, ours_in = os.pipe()
        ours_out, its_out = os.pipe()
        errors = 2 if self._log == "" else self._errors.fileno()
        forked = own.fork((its_in, its_out, errors), module=self._module, environment=environment)
        os.close(its_in)
        os.close(its_out)
        ours = os.fdopen(ours_in, "wb"), os.fdopen(ours_out, "rb")
        if forked is not None:
            forked.stdin, forked.stdout = ours
        else:
            for stream in ours:
                stream.close()
        return forked

    def __enter__(self):
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self.end()

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, message: Any) -> None:
        """Send an order. If the program has ended, this does nothing; `next_message` raises."""
        with contextlib.suppress(OSError, ValueError):
            pipe: IO[Any] = errors.certain(self._process.stdin)
            pipe.write(json.dumps(message).encode() + b"\n")
            pipe.flush()

    def next_message(self, timeout_s: float | None = None) -> dict[str, Any] | None:
        """Its next message; None if there is none within the time.

        Raises:
            EOFError: it has ended, or closed its output.
        """
        try:
            message = self._inbox.get(timeout=timeout_s)
        except queue.Empty:
            return None
        if message is None:
            self._inbox.put(None)  # for the next caller
            raise EOFError
        return message

    def messages(self) -> Iterator[dict[str, Any]]:
        """All its messages, until its end."""
        with contextlib.suppress(EOFError):
            while True:
                yield errors.certain(self.next_message())

    def stderr_tail(self, characters: int = 4000) -> str:
        """The end of what it has printed to its standard error so far."""
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")[-characters:]

    def status(self) -> int | None:
        """Exit status of a child that has closed its output (negative: a signal); None if it does not end."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(self._grace_s)
        return self._process.poll()

    def stop(self) -> None:
        """Ask it to end."""
        with contextlib.suppress(OSError):
            errors.certain(self._process.stdin).close()

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()

    def end(self) -> None:
        """Ask it to end; if it does not, send SIGTERM and then SIGKILL."""
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
        """Ask it to end, then send SIGTERM, then SIGKILL. Returns whether it ended without SIGKILL."""
        self.stop()
        for timeout_s, more in ((self._grace_s, self._terminate), (TERM_S, self._process.kill)):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout_s)
                return True
            more()
        return False

    def _terminate(self) -> None:
        """Send SIGTERM to its whole group, because its children may also have something to save."""
        with contextlib.suppress(OSError, AttributeError):  # Windows has no groups
            os.killpg(self.pid, signal.SIGTERM)

    def _hear(self, message: dict[str, Any]) -> None:
        self._inbox.put(message)

    def _listen(self) -> None:
        assert self._process.stdout is not None  # a pipe
        with self._process.stdout as stream:
            for line in stream:
                with contextlib.suppress(ValueError):  # other output on the pipe is no JSON
                    message = json.loads(line)
                    if isinstance(message, dict) and "kind" in message:
                        self._hear(message)
        self._inbox.put(None)


class Parent:
    """The program's side. From here on, libraries print to standard error, and standard input is empty."""

    def __init__(self):
        if pid := os.environ.pop(PARENT, None):  # removed, because this process' own children have another parent
            die_with(int(pid))
        line = _first_line(int(os.environ.pop(CONTENT, "0")))
        self.content: Any = json.loads(line)
        """What to do."""
        self.inlet, self.outlet = os.dup(0), os.dup(1)
        """File descriptors for orders and for messages."""
        os.dup2(2, 1)
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")  # as the command does, where output is ASCII
        with Path(os.devnull).open() as nothing:
            os.dup2(nothing.fileno(), 0)
        self._messages, self._lock = os.fdopen(self.outlet, "w", encoding="utf-8"), threading.Lock()
        forking.before_cold.append(lambda: self._give_back(line))

    def _give_back(self, line: bytes) -> None:
        """Give streams and content to the program that replaces this one."""
        os.dup2(self.inlet, 0)
        os.dup2(self.outlet, 1)
        content = os.memfd_create("content", 0)
        os.write(content, line)
        os.lseek(content, 0, os.SEEK_SET)
        os.environ[CONTENT] = str(content)

    def tell(self, kind: str, **content: Any) -> None:
        """Send a message to the parent."""
        with contextlib.suppress(OSError), self._lock:  # if the parent is gone, this process ends in a moment
            self._messages.write(json.dumps({"kind": kind, **content}) + "\n")
            self._messages.flush()

    def listen(
        self, hear: Callable[[dict[str, Any]], None] = lambda order: None, at_end: Callable[[], None] = lambda: None
    ) -> None:
        """Call `hear` with each order, and `at_end` at the end of input, in a thread of its own."""

        def wait() -> None:
            heard = b""
            while chunk := os.read(self.inlet, 2**16):  # unbuffered: the lock of a buffer would be held at exit
                *lines, heard = (heard + chunk).split(b"\n")
                for line in lines:
                    hear(json.loads(line))
            at_end()

        try:
            threading.Thread(target=wait, daemon=True).start()
        except RuntimeError as error:
            sys.exit(str(errors.refusal(error) or error))  # without orders there is nothing to do


def _first_line(descriptor: int) -> bytes:
    """The first line of input, and not a byte more: orders follow it."""
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(descriptor, 1)):
        line += byte
    return line


@contextlib.contextmanager
def silenced() -> Generator[None]:
    """Hide what is printed, and what C++ code writes to standard error, during the block."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)

"""Runs a profiler's command: passes on what it prints, knows its refusals, and leaves nothing running."""

from __future__ import annotations

import codecs
import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

from labkit.errors import UserError
from labkit.hardware.tools import which
from labkit.process.containment import end_killed
from labkit.runs.process import OUT_OF_CTRL_C

WHERE_FROM = {
    "nsys": "It comes with the CUDA toolkit and from https://developer.nvidia.com/nsight-systems; add its folder to "
    "PATH. Without it, a trace of torch.profiler shows the same kernels and operators.",
    "ncu": "It comes with the CUDA toolkit and from https://developer.nvidia.com/nsight-compute; add its folder to "
    "PATH. Without it, a trace of torch.profiler shows the kernels' times, though not what they do to the hardware.",
    "py-spy": "Install it with `pip install py-spy`.",
    "perf": "Install it with `sudo apt install linux-perf` (Debian), `sudo apt install linux-tools-$(uname -r)` "
    "(Ubuntu) or `sudo dnf install perf` (Fedora).",
}
"""Where each tool is to be had, and what to use instead"""

GRACE_S = 5.0
"""A tool that is told to end has this long to write what it has."""
LOOK_EVERY_S = 0.2
WINDOW = 2**16
"""Characters of the end of what was printed that are kept where it is shown"""
_ERROR = re.compile(r"\berror\s*:(?!:)|==ERROR==|\w+Error:", re.IGNORECASE)


@dataclass(frozen=True)
class Refusal:
    """Words of a tool that mean that it cannot do its work here."""

    words: str
    """Regular expression"""
    why: str
    """What they mean, and how to mend it"""


def missing_tool(name: str) -> UserError:
    """The error for a tool that is not there."""
    return UserError(f"{name} is not on PATH. {WHERE_FROM[name]}")


def run_tool(
    command: Sequence[str],
    *,
    refusals: Sequence[Refusal] = (),
    log: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
    show: bool = True,
) -> str:
    """Run a tool to its end.

    Whatever happens, Ctrl-C included, nothing that it started is left running.

    Args:
        command: the tool and its arguments.
        refusals: what it may say on its standard error or in its log that ends it at once, whatever its status.
        log: the file it writes its messages to, if it does.
        env: its environment instead of this process' own.
        timeout_s: end it after this time.
        show: pass on what it prints as it comes.

    Returns:
        What it printed on its standard output; only the end of it where it was shown.

    Raises:
        UserError: it is not on PATH, refused, ended with another status than 0, or did not end in time.
    """
    name = Path(command[0]).name
    try:
        process = subprocess.Popen(
            [which(command[0]) or command[0], *command[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=_plain_numbers(os.environ if env is None else env),
            **OUT_OF_CTRL_C,
        )
    except FileNotFoundError as error:
        raise missing_tool(name) if name in WHERE_FROM else UserError(f"{name} is not on PATH.") from error
    out = _Ear(process.stdout, sys.stdout if show else None, ())
    said = _Ear(process.stderr, sys.stderr if show else None, refusals)
    started: set[psutil.Process] = set()
    try:
        status = _wait(process, said, timeout_s, name, started)
    finally:
        _end(process, started)
        for ear in (out, said):  # what left the tool's group may still hold a stream
            ear.join(GRACE_S)
    logged = log.read_text(errors="replace") if log is not None and log.is_file() else ""
    for refusal in refusals:
        if said.refused is refusal or re.search(refusal.words, logged):
            raise UserError(refusal.why)
    if status:
        how = f"ended with status {status}" if status > 0 else f"was ended by {signal.Signals(-status).name}"
        raise UserError(
            f"{name} {how}{_last_words(logged, said.text, out.text)}. Run the program without {name} first; if that "
            f"works, run the whole command by itself: {shlex.join(command)}"
        )
    return out.text


class _Ear(threading.Thread):
    """Hears one stream of a tool to its end."""

    def __init__(self, stream: IO[bytes], shown: IO[str] | None, refusals: Sequence[Refusal]):
        super().__init__(daemon=True)
        self._stream, self._shown, self._refusals = stream, shown, refusals
        self.text = ""
        self.refused: Refusal | None = None
        self.start()

    def run(self) -> None:
        decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
        parts, recent = [], ""
        with self._stream:
            while chunk := os.read(self._stream.fileno(), WINDOW):
                new = decode(chunk)
                recent = (recent + new)[-2 * WINDOW :]
                if self._shown is not None:
                    self._show(new)
                    parts = [recent]
                else:
                    parts.append(new)
                if self.refused is None:
                    found = (refusal for refusal in self._refusals if re.search(refusal.words, recent))
                    self.refused = next(found, None)
                self.text = "".join(parts)

    def _show(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # nobody looks any more; the tool must not wait for that
            self._shown.write(text)
            self._shown.flush()


def _wait(
    process: subprocess.Popen, said: _Ear, timeout_s: float | None, name: str, started: set[psutil.Process]
) -> int | None:
    """Its status; None where it refused. All processes that it starts are added to `started`."""
    until = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        with contextlib.suppress(psutil.Error):
            started |= set(psutil.Process(process.pid).children(recursive=True))
        try:
            return process.wait(LOOK_EVERY_S)
        except subprocess.TimeoutExpired:
            if said.refused is not None:
                return None
            if until is not None and time.monotonic() > until:
                raise UserError(
                    f"{name} did not end within {timeout_s:g} s and was stopped. Give the program less to do, such as "
                    "fewer steps, or more time."
                ) from None


def _end(process: subprocess.Popen, started: set[psutil.Process]) -> None:
    """End a tool and all that it started."""
    with contextlib.suppress(psutil.Error):
        started |= set(psutil.Process(process.pid).children(recursive=True))
    try:
        if process.poll() is None:
            _signal_group(process, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(GRACE_S)
    finally:
        _signal_group(process, getattr(signal, "SIGKILL", signal.SIGTERM))
        for child in started:  # of those that left its group
            with contextlib.suppress(psutil.Error):
                child.kill()
        end_killed(process)


def _signal_group(process: subprocess.Popen, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, number)
        elif process.poll() is None:
            process.terminate()


def _plain_numbers(env: Mapping[str, str]) -> dict[str, str]:
    """The environment with numbers written as `1234.5`: these tools follow the user's language in their tables."""
    own = dict(env)
    language = own.pop("LC_ALL", "")
    return own | ({"LANG": language} if language else {}) | {"LC_NUMERIC": "C"}


def _last_words(*texts: str) -> str:
    """The last line that names an error, or else the last one there is, of the first text that has any."""
    for text in texts:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        if lines:
            return f": {next(filter(_ERROR.search, reversed(lines)), lines[-1])}"
    return ""

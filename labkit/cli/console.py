"""The console of every command, whose reader may leave early."""

from __future__ import annotations

import os
import sys
from typing import TextIO

import rich.console


class Console(rich.console.Console):
    """A rich console that falls silent when its reader leaves (`labkit train dlrm | head`); the command goes on."""

    def on_broken_pipe(self) -> None:
        self.quiet = True
        write_nowhere(self.file)


def write_nowhere(stream: TextIO = sys.stdout) -> None:
    """Send what is still written to a stream whose reader has left to nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def print_last(line: str) -> None:
    """Print a command's last line, whether or not anyone still reads it."""
    try:
        print(line, flush=True)
    except BrokenPipeError:
        write_nowhere()

"""A profiler that looks at this process from outside, for as long as it is let."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence

from labkit.errors import UserError
from labkit.hardware.tools import which
from labkit.process.child import OUT_OF_CTRL_C
from labkit.process.containment import end_killed

GRACE_S = 30.0
"""py-spy writes its stacks within a second."""
STOP = getattr(signal, "CTRL_BREAK_EVENT", signal.SIGINT)


class Attached:
    """It ends with this process, however that ends."""

    def __init__(self, command: Sequence[str]):
        """Start it.

        Args:
            command: of the tool, to look at this process.
        """
        self._name = command[0]
        self._process = subprocess.Popen(
            [which(command[0]), *command[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=os.environ | {"LC_ALL": "C"},  # numbers are written as 1234.5
            **OUT_OF_CTRL_C,
        )

    def end(self) -> None:
        """Let it write what it saw, and end it.

        Raises:
            UserError: it had ended by itself, or does not end.
        """
        status = self._process.poll()
        if status is None:
            self._process.send_signal(STOP)
        try:
            said, _ = self._process.communicate(timeout=GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            end_killed(self._process)
            raise UserError(f"{self._name} did not end within {GRACE_S:g} s and was stopped: profile again.") from None
        if status:
            raise UserError(f"{self._name} ended before the steps did, with status {status}: {' '.join(said.split())}")

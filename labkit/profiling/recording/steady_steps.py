"""Opens a window on a run's steady steps, in which a profiler that is a program of its own looks at this process."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from labkit.errors import UserError
from labkit.hardware.tools import which
from labkit.process.child import OUT_OF_CTRL_C
from labkit.process.containment import end_killed
from labkit.profiling.recording.recorder import StepWatcher
from labkit.profiling.recording.settings import ProfileSettings
from labkit.profiling.tools.programs import FACTS, PROGRAMS

STEP = "step"
"""Name of the NVTX range of each step in the window"""
GRACE_S = 30.0
"""py-spy writes its stacks within a second."""
STOP = getattr(signal, "CTRL_BREAK_EVENT", signal.SIGINT)


class Attached:
    """A tool's command to look at this process, which ends with it, however it ends."""

    def __init__(self, command: Sequence[str]):
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
        if (status := self._process.poll()) is None:
            self._process.send_signal(STOP)
        try:
            said, _ = self._process.communicate(timeout=GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            end_killed(self._process)
            raise UserError(f"{self._name} did not end within {GRACE_S:g} s and was stopped: profile again.") from None
        if status:
            raise UserError(f"{self._name} ended before the steps did, with status {status}: {' '.join(said.split())}")


class SteadySteps(StepWatcher):
    """Lets the first steps pass, then has a tool look."""

    def __init__(self, settings: ProfileSettings, tool: str, script: Path | str):
        """
        Args:
            settings: how many steps pass, and how many the window has at least.
            tool: that looks, one of `PROGRAMS`.
            script: that takes the steps.
        """
        super().__init__(settings, tool)
        self._script = os.path.abspath(script)  # noqa: PTH100  links stay as they are, as in a stack
        self.program = PROGRAMS[tool]
        self.steps = 0
        """In the window"""
        self._attached: Attached | None = None
        self._opened: float | None = None
        self._window_s = 0.0
        self._phases_us: dict[str, list[float]] = {}

    def describe(self) -> dict[str, Any]:
        described = super().describe()
        return {name: described[name] for name in ("tool", "skip", "warmup", "steps")}

    def step(self) -> bool:
        self.taken += 1
        if self._opened is None:
            if self.taken == self.settings.skip + self.settings.warmup:
                self._open()
            return False
        self.steps += 1
        if self.steps < self.settings.steps or time.perf_counter() - self._opened < self.program.least_s:
            self._end_step()
            self._begin_step()
            return False
        self._close()
        return True

    def finish(self) -> None:
        """Close the window where the steps ended before the schedule did, and write down what it was."""
        if self._opened is not None and not self.is_done:
            self._close()
        self.write_facts(
            FACTS,
            tool=self.tool,
            script=self._script,
            steps=self.steps,
            window_s=self._window_s,
            phases_us=self._phases_us,
        )

    def _open(self) -> None:
        if self.is_on_gpu:
            torch.cuda.synchronize(self.device)  # what was launched before belongs to steps that pass
            torch.cuda.profiler.start()
        if self.program.attaches:
            self._attached = Attached(self.program.attaches(self.trace / self.program.output, os.getpid()))
        self._begin_step()
        self.clock.restart()
        self._opened = time.perf_counter()

    def _close(self) -> None:
        self.is_done = True
        if self.is_on_gpu:
            torch.cuda.synchronize(self.device)
        self._window_s = time.perf_counter() - self._opened
        self._phases_us, _ = self.clock.read()
        if self._attached is not None:
            self._attached.end()
        self._end_step()
        if self.is_on_gpu:
            torch.cuda.profiler.stop()

    def _begin_step(self) -> None:
        if self.is_on_gpu:
            torch.cuda.nvtx.range_push(STEP)

    def _end_step(self) -> None:
        if self.is_on_gpu:
            torch.cuda.nvtx.range_pop()

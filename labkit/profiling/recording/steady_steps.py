"""Opens a window on a run's steady steps, in which a profiler that is a program of its own looks at this process."""

from __future__ import annotations

import os
import time
from pathlib import Path

import torch

from labkit.profiling.recording.recorder import StepWatcher
from labkit.profiling.recording.settings import ProfileSettings
from labkit.profiling.tools.programs import OUTPUTS
from labkit.profiling.tools.py_spy import LEAST_S, PySpy
from labkit.profiling.tools.tool_profile import FACTS


class SteadySteps(StepWatcher):
    """Lets the first steps pass, then has a tool look: nsys for the steps of the settings, py-spy for longer."""

    def __init__(self, settings: ProfileSettings, tool: str, script: Path | str):
        super().__init__(settings, tool)
        self._script = os.path.abspath(script)  # noqa: PTH100  links stay as they are, as in a stack
        self.least_s = LEAST_S if tool == "py-spy" else 0.0
        """The window is open for so long at least"""
        self._py_spy: PySpy | None = None
        self._steps, self._opened, self._window_s = 0, 0.0, 0.0

    def step(self) -> bool:
        self.taken += 1
        self._steps = max(0, self.taken - self.settings.skip - self.settings.warmup)
        if self.taken == self.settings.skip + self.settings.warmup:
            self._open()
        elif self._steps >= self.settings.steps and time.perf_counter() - self._opened >= self.least_s:
            self._close()
        return self.is_done

    def finish(self) -> None:
        """Close the window where the steps ended before the schedule did, and write down what it was."""
        if self._opened and not self.is_done:
            self._close()
        self.write_facts(FACTS, tool=self.tool, script=self._script, steps=self._steps, window_s=self._window_s)

    def _open(self) -> None:
        if self.is_on_gpu:
            torch.cuda.synchronize(self.device)  # what was launched before belongs to steps that pass
            torch.cuda.profiler.start()
        if self.tool == "py-spy":
            self._py_spy = PySpy(self.trace / OUTPUTS[self.tool])
        self._opened = time.perf_counter()

    def _close(self) -> None:
        self.is_done = True
        if self.is_on_gpu:
            torch.cuda.synchronize(self.device)
        self._window_s = time.perf_counter() - self._opened
        if self._py_spy is not None:
            self._py_spy.end()
        if self.is_on_gpu:
            torch.cuda.profiler.stop()

"""Opens a window on a run's steady steps, in which a profiler that is a program of its own looks at this process."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import torch

from labkit.profiling.recording.recorder import StepWatcher
from labkit.profiling.recording.settings import ProfileSettings
from labkit.profiling.tools.programs import OUTPUTS
from labkit.profiling.tools.py_spy import LEAST_S, PySpy
from labkit.profiling.tools.tool_profile import FACTS

STEP = "step"
"""Name of the NVTX range of each step in the window"""


class SteadySteps(StepWatcher):
    """Lets the first steps pass, then has a tool look."""

    def __init__(self, settings: ProfileSettings, tool: str, script: Path | str):
        """
        Args:
            settings: how many steps pass, and how many the window has at least.
            tool: that looks, one of `OUTPUTS`.
            script: that takes the steps.
        """
        super().__init__(settings, tool)
        self._script = os.path.abspath(script)  # noqa: PTH100  links stay as they are, as in a stack
        self.least_s = LEAST_S if tool == "py-spy" else 0.0
        """The window is open for so long at least"""
        self.steps = 0
        """In the window"""
        self._py_spy: PySpy | None = None
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
        if self.steps < self.settings.steps or time.perf_counter() - self._opened < self.least_s:
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
        if self.tool == "py-spy":
            self._py_spy = PySpy(self.trace / OUTPUTS[self.tool])
        self._begin_step()
        self.clock.restart()
        self._opened = time.perf_counter()

    def _close(self) -> None:
        self.is_done = True
        if self.is_on_gpu:
            torch.cuda.synchronize(self.device)
        self._window_s = time.perf_counter() - self._opened
        self._phases_us, _ = self.clock.read()
        if self._py_spy is not None:
            self._py_spy.end()
        self._end_step()
        if self.is_on_gpu:
            torch.cuda.profiler.stop()

    def _begin_step(self) -> None:
        if self.is_on_gpu:
            torch.cuda.nvtx.range_push(STEP)

    def _end_step(self) -> None:
        if self.is_on_gpu:
            torch.cuda.nvtx.range_pop()

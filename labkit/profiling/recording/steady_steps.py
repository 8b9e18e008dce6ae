"""Opens a window on a run's steady steps, for profilers that are programs of their own."""

from __future__ import annotations

import ast
import json
import os
import select
import sys
import time
from pathlib import Path
from typing import Any

import torch

from labkit.errors import UserError
from labkit.profiling.recording.phase_clock import PhaseClock
from labkit.profiling.recording.settings import ProfileSettings
from labkit.profiling.tools.tool_profile import FACTS
from labkit.runs.atomic import replace_text

FORMAT = 1
STEP = "step"
"""Name of the NVTX range of each step in the window"""
ANSWER_S = 10.0
"""perf answers within a millisecond; one that does not for this long is gone, or hangs."""


class PerfSwitch:
    """Turns perf's counting on and off through its control FIFO (perf-stat(1), `--control`)."""

    def __init__(self, control: Path, answers: Path):
        self._control, self._answers = control, answers

    def say(self, word: str) -> None:
        """Give a command, and wait until perf has carried it out.

        Raises:
            UserError: perf does not answer.
        """
        # opened for both, a FIFO does not wait for its other end
        control, answers = (os.open(path, os.O_RDWR | os.O_NONBLOCK) for path in (self._control, self._answers))
        try:
            os.write(control, f"{word}\n".encode())
            if not select.select([answers], [], [], ANSWER_S)[0]:
                raise UserError(
                    f"perf did not answer to {word!r} within {ANSWER_S:g} s, so that what it counted is not known: "
                    "profile again, or with another --tool."
                )
            os.read(answers, 64)
        finally:
            os.close(control)
            os.close(answers)


class SteadySteps:
    """Lets the first steps pass, then tells a tool when to look; a `labkit.tracking.observer.StepObserver`."""

    def __init__(
        self,
        settings: ProfileSettings,
        tool: str,
        *,
        script: Path | None = None,
        least_s: float = 0.0,
        perf_switch: PerfSwitch | None = None,
    ):
        """
        Args:
            settings: how many steps pass, and how many the window has at least.
            tool: that looks.
            script: that takes the steps; the lines of the loop that does are written down.
            least_s: seconds that the window has at least.
            perf_switch: of the perf that counts this process; None for other tools.
        """
        self._script = script
        self._loop: tuple[str, int, int] | None = None
        self.settings, self.tool, self.least_s = settings, tool, least_s
        self.taken = 0
        """Steps so far"""
        self.is_done = False
        """Whether the window is closed again"""
        self.steps = 0
        """Of them, those in the window"""
        self.clock = PhaseClock()
        self._perf = perf_switch
        self._is_open = False
        self._window_s = 0.0
        self._phases_us: dict[str, list[float]] = {}

    def describe(self) -> dict[str, Any]:
        plan = self.settings
        schedule = {"skip": plan.skip, "warmup": plan.warmup, "steps": plan.steps}
        return {"tool": self.tool, **schedule, "least_s": self.least_s}

    def start(self, folder: Path, on: torch.device) -> None:
        self._trace = folder / "trace"
        self._trace.mkdir(exist_ok=True)
        self._device = on
        self._on_gpu = on.type == "cuda"
        self.clock.nvtx = self._on_gpu
        self._started = time.perf_counter()

    def step(self) -> bool:
        """Take note of a step; True once the window is closed."""
        self.taken += 1
        if not self._is_open:
            if self.taken == self.settings.skip + self.settings.warmup:
                self._open()
            return False
        self.steps += 1
        if self.steps < self.settings.steps or time.perf_counter() - self._opened < self.least_s:
            self._end_step()
            self._begin_step()
            return False
        self._close()
        self.is_done = True
        return True

    def computes_on(self, device: torch.device) -> None:
        """Take note of the device, where it is known only after the first step."""
        if device != self._device and self.taken == 0:
            self._device, self._on_gpu = device, device.type == "cuda"
            self.clock.nvtx = self._on_gpu

    def finish(self) -> None:
        """Close the window where the steps ended before the schedule did, and write down what it was."""
        if self._is_open:
            self._close()
        facts = {
            "format": FORMAT,
            "tool": self.tool,
            "settings": self.describe(),
            "device": str(self._device),
            "threads": torch.get_num_threads(),
            "steps": self.steps,
            "window_s": self._window_s,
            "observed_s": time.perf_counter() - self._started,
            "steps_taken": self.taken,
            "loop": self._loop,
            "is_switched": self._perf is not None or self.tool in ("nsys", "ncu"),
            "phases_us": self._phases_us,
        }
        replace_text(self._trace / FACTS, json.dumps(facts, indent=1) + "\n")

    def _open(self) -> None:
        self._loop = _loop_of(self._script) if self._script is not None else None
        if self._on_gpu:
            torch.cuda.synchronize(self._device)  # what was launched before belongs to steps that pass
            torch.cuda.profiler.start()
        if self._perf is not None:
            self._perf.say("enable")
        self._begin_step()
        self._is_open = True
        self.clock.restart()
        self._opened = time.perf_counter()

    def _close(self) -> None:
        self._is_open = False
        if self._on_gpu:
            torch.cuda.synchronize(self._device)
        self._window_s = time.perf_counter() - self._opened
        self._phases_us = self.clock.read()
        if self._perf is not None:
            self._perf.say("disable")
        self._end_step()
        if self._on_gpu:
            torch.cuda.profiler.stop()

    def _begin_step(self) -> None:
        if self._on_gpu:
            torch.cuda.nvtx.range_push(STEP)

    def _end_step(self) -> None:
        if self._on_gpu:
            torch.cuda.nvtx.range_pop()


def _loop_of(script: Path) -> tuple[str, int, int]:
    """A script that calls, and the lines of the outermost loop in which it does, within its function."""
    frame = sys._getframe()
    while frame is not None and frame.f_code.co_filename != str(script):
        frame = frame.f_back
    tree = ast.parse(script.read_bytes())
    if frame is None:  # another thread's, say
        return str(script), 1, tree.body[-1].end_lineno
    line = frame.f_lineno
    around = [node for node in ast.walk(tree) if isinstance(node, ast.stmt) and node.lineno <= line <= node.end_lineno]
    outside = [place for place, node in enumerate(around) if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    around = around[outside[-1] + 1 :] if outside else around
    found = next((node for node in around if isinstance(node, ast.For | ast.While)), around[-1])
    return str(script), found.lineno, found.end_lineno

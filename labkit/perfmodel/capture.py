"""The operators of a few steps of an unchanged training script, and the time of its steps."""

from __future__ import annotations

import statistics
import tempfile
import time
from dataclasses import dataclass, replace

from labkit import UserError, profiling, telemetry, tracking
from labkit.perfmodel.operators import Calls, Operator

MEASURED_S, MOST_STEPS = 2.0, 400
"""Time and number of steps for which a script is timed"""
MOST_CAPTURED = 16
"""Number of captured steps if they differ: a recogniser's batches have few seconds of speech, or many"""
FAR_OFF = 3.0
"""Multiple of the median above which a step does not count, because something else held it up"""
WARM = 6
"""Steps before timing"""


@dataclass(frozen=True)
class CapturedSteps:
    """The operators of a script's steps."""

    steps: list[list[Operator]]
    """Two steps, or more if these called operators of different sizes"""
    memory_bytes: int
    """Peak memory of the process until then"""
    notes: list[str]
    """Notes for the user"""


class StepCapture(profiling.StepWatcher):
    """Skips the first steps, which differ, and captures the operators of the next two; of more if these differ."""

    def __init__(self):
        super().__init__(profiling.ProfileSettings(skip=2, warmup=1, steps=MOST_CAPTURED), "operators")
        self.steps: list[list[Operator]] = []
        self.memory_bytes = 0
        self._calls: Calls | None = None

    def step(self) -> bool:
        self.taken += 1
        self.clock.restart()
        self._end()
        self.is_done = len(self.steps) == self.settings.steps or (len(self.steps) == 2 and not self.differ)
        if not self.is_done and self.taken >= self.settings.skip + self.settings.warmup - 1:
            if not self.memory_bytes:  # captured storages are kept alive, and would count
                self.memory_bytes = telemetry.own_peak_bytes()
            self._calls = Calls()
            self._calls.__enter__()
        return self.is_done

    @property
    def differ(self) -> bool:
        """Whether the first two steps called operators of different sizes."""
        first, second = self.steps[:2]
        return [each.tensors for each in first] != [each.tensors for each in second]

    def finish(self) -> None:
        self.is_done = True
        if self._calls is not None:  # an unfinished step
            self._calls.__exit__(None, None, None)
            self._calls = None

    def _end(self) -> None:
        calls, self._calls = self._calls, None
        if calls is not None:
            calls.__exit__(None, None, None)
            self.steps.append(calls.operators)


class StepTimes(profiling.StepWatcher):
    """Skips the first steps, and times those that follow, without the wait for their data."""

    def __init__(self):
        super().__init__(profiling.ProfileSettings(skip=WARM - 1, warmup=1, steps=MOST_STEPS), "step times")
        self.times_s: list[float] = []
        self._at = 0.0

    def step(self) -> bool:
        self.taken += 1
        now = time.perf_counter()
        phases, _ = self.clock.read()
        if self.taken > WARM:
            waited_us = phases.get(tracking.INPUT, [0.0])[0]
            self.times_s.append(now - self._at - waited_us / 1e6)
        self._at = time.perf_counter()
        self.is_done = len(self.times_s) == MOST_STEPS or sum(self.times_s) > MEASURED_S
        return self.is_done

    def finish(self) -> None:
        self.is_done = True


def captured_steps(command: tracking.ScriptCommand, stop: tracking.StopRequest) -> CapturedSteps:
    """Run a script for a few steps, and capture their operators.

    Raises:
        UserError: there is no such script; it failed, or ended before its fifth step; it computes on a GPU.
    """
    capture = StepCapture()
    _run(command, capture, stop)
    if len(capture.steps) < 2:
        raise UserError(f"{command.script}: it ended before its fifth step: let it train for longer.")
    notes = []
    if capture.differ:
        notes.append(
            "Two consecutive steps called operators of different sizes. This script's steps depend on its data, so the "
            f"prediction is the mean of {len(capture.steps)} steps."
        )
    return CapturedSteps(capture.steps, capture.memory_bytes, notes)


def measured_step_s(command: tracking.ScriptCommand, stop: tracking.StopRequest) -> float:
    """Run a script for some steps, and return their mean time, without the wait for their data.

    Raises:
        UserError: as `captured_steps`.
    """
    times = StepTimes()
    _run(command, times, stop)
    if not times.times_s:
        raise UserError(f"{command.script}: it ended before step {WARM + 1}: let it train for longer.")
    usual_s = statistics.median(times.times_s)
    return statistics.fmean(each for each in times.times_s if each <= FAR_OFF * usual_s)


def _run(command: tracking.ScriptCommand, watcher: profiling.StepWatcher, stop: tracking.StopRequest) -> None:
    with tempfile.TemporaryDirectory() as folder:  # the run is not kept
        profiling.profile_script(replace(command, runs_dir=folder), watcher, stop, lambda event: None)
    if watcher.is_on_gpu:
        raise UserError(
            f"{command.script}: it computes on {watcher.device}, and cards describe CPUs: give --device cpu if the "
            "script has such a flag, or --budget all-cores."
        )

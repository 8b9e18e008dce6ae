"""The operators of one step of an unchanged training script."""

from __future__ import annotations

import tempfile
from dataclasses import replace

from labkit.errors import UserError
from labkit.perfmodel.operators import Calls, Operator
from labkit.profiling.recording.profile_steps import profile_script
from labkit.profiling.recording.recorder import StepWatcher
from labkit.profiling.recording.settings import ProfileSettings
from labkit.tracking.command import ScriptCommand
from labkit.tracking.ending import StopRequest
from labkit.tracking.events import OnEvent


class StepCapture(StepWatcher):
    """Passes over the first steps, which differ, and writes down what the next two call."""

    def __init__(self):
        super().__init__(ProfileSettings(skip=2, warmup=1, steps=2), "operators")
        self.steps: list[list[Operator]] = []
        self._calls: Calls | None = None

    def step(self) -> bool:
        self.taken += 1
        self.clock.restart()
        self._end()
        self.is_done = len(self.steps) == self.settings.steps
        if not self.is_done and self.taken >= self.settings.skip + self.settings.warmup - 1:
            self._calls = Calls()
            self._calls.__enter__()
        return self.is_done

    def finish(self) -> None:
        self.is_done = True
        if self._calls is not None:  # a step that did not end
            self._calls.__exit__(None, None, None)
            self._calls = None

    def _end(self) -> None:
        calls, self._calls = self._calls, None
        if calls is not None:
            calls.__exit__(None, None, None)
            self.steps.append(calls.operators)


def script_operators(command: ScriptCommand, stop: StopRequest, on_event: OnEvent) -> tuple[list[Operator], list[str]]:
    """Run a script for a few steps: the operators of one of them, and what its user should know.

    Raises:
        UserError: there is no such script; it failed, or ended before its fifth step; it computes on a GPU.
    """
    capture = StepCapture()
    with tempfile.TemporaryDirectory() as folder:  # these steps are no run to keep
        profile_script(replace(command, runs_dir=folder), capture, stop, on_event)
    if capture.is_on_gpu:
        raise UserError(
            f"{command.script}: it computes on {capture.device}, and a card is of a CPU: give --device cpu if the "
            "script has such a flag, or --budget all-cores."
        )
    if not capture.steps:
        raise UserError(f"{command.script}: it ended before its fifth step, so that none could be looked at.")
    first, last = capture.steps[0], capture.steps[-1]
    notes = []
    if [each.tensors for each in first] != [each.tensors for each in last]:
        notes.append(
            "Two steps in a row called operators of different sizes: this script's steps depend on its data, and the "
            "prediction is of one of them."
        )
    return last, notes

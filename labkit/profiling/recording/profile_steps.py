"""Profiles steps that the caller takes, in a notebook say, where a step is a call."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import torch

from labkit.hardware.budgets.names import offered_budgets
from labkit.hardware.calibration import Calibration, calibrate
from labkit.profiling.profile import Profile, read_profile, save_card
from labkit.profiling.recording.recorder import StepRecorder
from labkit.profiling.recording.settings import ProfileSettings
from labkit.tracking.command import ScriptCommand
from labkit.tracking.ending import Enough
from labkit.tracking.harness import Harness
from labkit.tracking.phases import watched_by
from labkit.tracking.run import Run
from labkit.tracking.stop import StopRequest


def profile_steps(
    step: Callable[[], object],
    runs_dir: Path | str,
    *,
    name: str = "steps",
    card: Calibration | None = None,
    device: str = "cpu",
    **settings: int | bool,
) -> Profile:
    """Call a step as often as its profile needs, and record it into a run folder.

    Args:
        step: takes one step; phases that it announces with `labkit.tracking.phases.phase` are told apart.
        runs_dir: the folder that the run's folder is made in.
        name: of the run.
        card: what this machine can do; None measures it, which takes a second or two.
        device: that computes.
        settings: of ProfileSettings: skip, warmup, steps, shapes, memory, graph.

    """
    recorder, on = StepRecorder(ProfileSettings(**settings)), torch.device(device)
    on_gpu = on.type == "cuda"
    budgets = {budget.torch_name: budget for budget in offered_budgets()}
    budget = budgets[f"cuda:{on.index or 0}" if on_gpu else "cpu"]
    harness = Harness(StopRequest(), ScriptCommand(runs_dir=str(runs_dir)), whole_budget=budget, observer=recorder)
    phases = watched_by(recorder.clock.watch)
    with contextlib.suppress(Enough), harness.wrapped(), phases, Run(name) as run:
        run.start_clock()
        while True:
            step()
            run.step(samples=0)
    save_card(run.folder, card or calibrate(device, repeats=3))
    return read_profile(run.folder)

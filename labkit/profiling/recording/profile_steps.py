"""Profiles steps that the caller takes, in a notebook say, where a step is a call."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from labkit.hardware.calibration import Calibration, calibrate
from labkit.profiling.profile import Profile, read_profile, save_card
from labkit.profiling.recording.profiled_run import chosen_budget, open_profiled_run
from labkit.profiling.recording.recorder import StepRecorder
from labkit.profiling.recording.settings import ProfileSettings


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
        step: takes one step; phases that it announces with `labkit.training.phases.phase` are told apart.
        runs_dir: the folder that the run's folder is made in.
        name: of the run.
        card: what this machine can do; None measures it, which takes a second or two.
        device: that computes.
        settings: of ProfileSettings: skip, warmup, steps, shapes, memory, graph.

    Raises:
        UserError: a setting is out of its bounds.
    """
    plan, on = ProfileSettings(**settings), torch.device(device)
    recorder, budget = StepRecorder(plan), chosen_budget(None, on_gpu=on.type == "cuda")
    run = open_profiled_run(Path(runs_dir), name, config={"job": "steps"}, profile=recorder.describe(), budget=budget)
    status = "failed"
    try:
        recorder.start(run.folder, on)
        try:
            step()
            while not recorder.step():
                step()
        finally:
            recorder.finish()
        status = "done"
    finally:
        run.finish(status, {"reason": "profiled" if status == "done" else "its step failed", "steps": recorder.taken})
    save_card(run.folder, card or calibrate(device, repeats=3))
    return read_profile(run.folder)

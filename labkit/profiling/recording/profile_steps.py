"""Profiles steps in this process: those that the caller takes, in a notebook say, or those of an unchanged script."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import torch

from labkit.errors import UserError
from labkit.hardware import Calibration, calibrate
from labkit.profiling.profile import Profile, read_profile, save_card
from labkit.profiling.recording.recorder import StepRecorder, StepWatcher
from labkit.profiling.recording.script_steps import ScriptSteps, replaced
from labkit.profiling.recording.settings import ProfileSettings
from labkit.tracking import (
    Enough,
    Harness,
    OnEvent,
    Run,
    ScriptCommand,
    StopRequest,
    print_error,
    run_command,
    watched_by,
    whole_device,
)


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
        settings: of `ProfileSettings`.
    """
    recorder, on = StepRecorder(ProfileSettings(**settings)), torch.device(device)
    budget = whole_device(f"cuda:{on.index or 0}" if on.type == "cuda" else "cpu")
    harness = Harness(StopRequest(), ScriptCommand(runs_dir=str(runs_dir), budget=budget), observer=recorder)
    phases = watched_by(recorder.clock.watch)
    with contextlib.suppress(Enough), harness.wrapped(), phases, Run(name) as run:
        run.start_clock()
        while True:
            step()
            run.step(samples=0)
    save_card(run.folder, card or calibrate(device, repeats=3))
    return read_profile(run.folder)


def profile_script(
    command: ScriptCommand, observer: StepWatcher, stop: StopRequest, on_event: OnEvent
) -> tuple[Path, list[str]]:
    """Run a script until its profile is recorded, then end it: the run's folder, and what its user should know.

    Raises:
        UserError: there is no such script; it failed, or ended before a step was recorded.
        KeyboardInterrupt: it was stopped before.
    """
    steps = ScriptSteps(observer)
    try:
        with _only_profiler(observer):
            answer = run_command(command, stop, on_event, steps=steps.watched, observer=observer, on_step=steps.step)
    except (UserError, OSError):
        raise
    except SystemExit as ending:
        how = f"{command.script}: the script ended by sys.exit({ending.code!r})"
        raise UserError(f"{how} before its first step, so there is none to profile.") from None
    except Exception as error:
        print_error(error)
        raise UserError(
            f"{command.script}: {type(error).__name__}: {error}. The script failed, so nothing is said of its steps."
        ) from error
    if answer["status"] == "stopped":
        raise KeyboardInterrupt
    folder, result = Path(answer["folder"]), answer["result"]
    if answer["status"] == "failed":
        raise UserError(
            f"{command.script}: {result['reason']}, so nothing is said of its steps; {folder} has the record."
        )
    return folder, [] if result["ended_by"] == "profiled" else [_ended_early(command, observer, result["reason"])]


def _ended_early(command: ScriptCommand, observer: StepWatcher, reason: str) -> str:
    """What to know of a run that ended before the schedule did; a UserError where nothing was recorded."""
    needed, taken = observer.settings.skip + observer.settings.warmup + 1, observer.taken
    if taken >= needed:
        return f"{reason} after {taken} steps: {min(taken - needed + 1, observer.settings.steps)} are recorded"
    why = (
        f"after {taken} steps, and recording begins at step {needed}: let it train for longer"
        + (", or give a smaller --skip and --warmup" if observer.tool == "torch" else "")
        if taken
        else "and no optimiser of torch had stepped, so there is no step to profile: name the script that trains, in "
        "the main thread of its process"
    )
    raise UserError(f"{command.script}: {reason} {why}.")


def _only_profiler(observer: StepWatcher) -> contextlib.AbstractContextManager[None]:
    """Refuse a script's own torch.profiler, which would end ours."""

    def guarded(plain: Callable) -> Callable:
        def start(profiler: torch.profiler.profile) -> None:
            if profiler is not observer.profiler and not observer.is_done:
                raise UserError("the script starts a profiler of its own, and there can be but one: leave that out")
            plain(profiler)

        return start

    return replaced(torch.profiler.profile, "start", guarded)

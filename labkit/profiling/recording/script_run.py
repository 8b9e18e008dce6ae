"""Profiles an unchanged training script in this process, into its run's folder."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import torch

from labkit.errors import UserError
from labkit.profiling.recording.recorder import StepWatcher
from labkit.profiling.recording.script_steps import ScriptSteps, replaced
from labkit.tracking.command import ScriptCommand
from labkit.tracking.events import OnEvent
from labkit.tracking.script import print_error, run_command
from labkit.tracking.stop import StopRequest


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
        f"after {taken} steps, and recording begins at step {needed}: let it train for longer, or give a smaller "
        "--skip and --warmup"
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

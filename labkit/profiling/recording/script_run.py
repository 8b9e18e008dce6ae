"""Profiles an unchanged training script in this process, into a run folder."""

from __future__ import annotations

import contextlib
import runpy
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit.errors import UserError
from labkit.profiling.recording.profiled_run import chosen_budget, open_profiled_run
from labkit.profiling.recording.settings import ProfileSettings
from labkit.training.as_main import as_main

if TYPE_CHECKING:
    from labkit.profiling.recording.recorder import StepRecorder
    from labkit.profiling.recording.steady_steps import SteadySteps


class _Enough(BaseException):
    """All is recorded; no `except Exception` of the script holds it up."""


def profile_script(
    script: Path,
    arguments: Sequence[str] = (),
    *,
    settings: ProfileSettings,
    runs_dir: Path,
    budget: str | None = None,
    observer: StepRecorder | SteadySteps | None = None,
) -> tuple[Path, list[str]]:
    """Run a script until its profile is recorded, then end it.

    Args:
        script: a Python file that trains with torch.
        arguments: of the script.
        settings: which of its steps are recorded.
        runs_dir: the folder that the run's folder is made in.
        budget: that binds this process from here on; None takes the whole machine.
        observer: looks at its steps; None records them with torch.profiler.

    Returns:
        The run's folder, and what its user should know.

    Raises:
        UserError: there is no such script; it failed, or ended before a step was recorded.
    """
    import torch

    from labkit.profiling.recording.recorder import StepRecorder
    from labkit.profiling.recording.script_steps import ScriptSteps

    if not script.is_file():
        raise UserError(f"{script}: there is no such script: name a Python file.")
    chosen = chosen_budget(budget, on_gpu=torch.cuda.is_available())
    notes = chosen.enforce()
    chosen.share_gpu()
    chosen.cap_gpu_memory()
    if chosen.cores is not None:
        torch.set_num_threads(chosen.cores)
    recorder = observer or StepRecorder(settings)
    run = open_profiled_run(
        runs_dir,
        f"script-{script.stem}",
        config={"job": "script", "script": str(script), "arguments": list(arguments)},
        profile=recorder.describe(),
        budget=chosen,
    )
    ending: dict[str, Any] = {"status": "failed", "reason": ""}
    try:
        recorder.start(run.folder, torch.device("cpu"))  # until its first step tells
        steps = ScriptSteps(recorder.clock, lambda device: _step(recorder, device))
        try:
            with as_main(script, arguments), _only_profiler(recorder), steps.watch():
                runpy.run_path(str(script), run_name="__main__")
        finally:
            recorder.finish()
        ending = _ended_early(recorder, settings)
    except _Enough:
        ending = {"status": "done", "reason": "profiled"}
    except KeyboardInterrupt:
        ending = {"status": "stopped", "reason": "stopped by Ctrl-C"}
        raise
    except SystemExit as error:
        ending = _ended_early(recorder, settings, f" by sys.exit({error.code!r})")
    except UserError as error:
        ending["reason"] = str(error)
    except BaseException as error:
        ending["reason"] = f"{type(error).__name__}: {error}"
        traceback.print_exc()
    finally:
        run.finish(ending["status"], {"reason": ending["reason"], "steps": recorder.taken})
    if ending["status"] == "failed":
        raise UserError(f"{script}: {ending['reason']}. Nothing is said of its steps; {run.folder} has the record.")
    return run.folder, notes + ([ending["reason"]] if ending["reason"] != "profiled" else [])


def _step(recorder: Any, device: Any) -> None:
    recorder.computes_on(device)
    if recorder.is_done or recorder.step():  # a script may have caught what was to end it
        raise _Enough


def _ended_early(recorder: Any, settings: ProfileSettings, how: str = "") -> dict[str, str]:
    """How a run ends whose script did before the schedule."""
    needed = settings.skip + settings.warmup + 1
    if recorder.is_done:
        return {"status": "done", "reason": "profiled"}
    if recorder.taken >= needed:
        recorded = min(recorder.taken - needed + 1, settings.steps)
        return {
            "status": "done",
            "reason": f"the script ended{how} after {recorder.taken} steps: {recorded} are recorded",
        }
    if recorder.taken == 0:
        why = (
            f"the script ended{how} and no optimiser of torch had stepped, so there is no step to profile: name "
            "the script that trains, in the main thread of its process"
        )
    else:
        why = (
            f"the script ended{how} after {recorder.taken} steps, and recording begins at step {needed}: let it train "
            "for longer, or give a smaller --skip and --warmup"
        )
    return {"status": "failed", "reason": why}


@contextlib.contextmanager
def _only_profiler(recorder: Any) -> Iterator[None]:
    """Refuse a script's own torch.profiler, which would end ours."""
    import torch

    plain = torch.profiler.profile.start

    def start(profiler: torch.profiler.profile) -> None:
        if profiler is not getattr(recorder, "profiler", None) and not recorder.is_done:
            raise UserError("the script starts a profiler of its own, and there can be but one: leave that out")
        plain(profiler)

    torch.profiler.profile.start = start
    try:
        yield
    finally:
        torch.profiler.profile.start = plain

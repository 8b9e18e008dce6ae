"""What ways of predicting a job's memory are worth, beside what it takes; for the kit's jobs with plain kernels.

Run as a program, it takes a job's first steps while every allocation of a tensor is counted.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from labkit.errors import UserError
from labkit.jobs.command import job_command
from labkit.process.child import Child, Parent
from labkit.tracking.command import ScriptCommand

if TYPE_CHECKING:
    import pandas as pd

METHODS = ("formula", "torch's tracker", "Horus' formula")
PROCESS = "the whole process"
"""Stands where a method does: nothing predicts it, and what was measured is of all of the process"""
STEPS = 3
"""That are counted: the optimiser's state is there while a whole step is taken, twice."""


def estimates(job: str, **settings: Any) -> pd.DataFrame:
    """What three methods predict for the tensors of a job on a CPU.

    Args:
        job: "dlrm" or "speech".
        settings: flags of its script, by name; kernels is "plain", and precision "fp32" or "bf16".

    Returns:
        Columns model, preset, batch_size, precision, method, predicted (bytes).

    Raises:
        UserError: a setting cannot be.
    """
    import pandas as pd

    from labkit.collocation.memory.formulas import formula, horus_estimate, tracked_bytes
    from labkit.jobs.plain_step import plain_step

    if settings.get("kernels") != "plain" or settings.get("precision") not in ("fp32", "bf16"):
        raise UserError('estimates are of plain kernels: give kernels="plain", and precision="fp32" or "bf16".')
    step = plain_step(job, job_command(job, **settings).arguments)
    predicted = [sum(formula(step).values()), tracked_bytes(step), horus_estimate(step)]
    asked = {name: getattr(step.settings, name) for name in ("preset", "batch_size", "precision")}
    return pd.DataFrame({"model": job, **asked, "method": METHODS, "predicted": predicted})


def score(jobs: Iterable[tuple[str, dict[str, Any]]]) -> pd.DataFrame:
    """Predict and measure jobs on this machine's CPU, one after another.

    Args:
        jobs: of each its name and settings, as `estimates` takes them.

    Returns:
        The columns of `estimates`, measured (bytes), error_% (above zero: predicted more than was measured). The last
        row of each job is of its process.
    """
    import pandas as pd

    from labkit.collocation.memory.need import memory_need

    frames = []
    for job, settings in jobs:
        command = job_command(job, **settings)
        frame = estimates(job, **settings).assign(measured=counted_bytes(command))
        process = {"method": PROCESS, "predicted": None, "measured": memory_need(command, "cpu").first_steps_bytes}
        frames += [frame, frame.iloc[:1].assign(**process)]
    scored = pd.concat(frames, ignore_index=True).astype({"predicted": float, "measured": float})
    return scored.assign(**{"error_%": 100 * (scored["predicted"] / scored["measured"] - 1)})


def counted_bytes(command: ScriptCommand) -> int:
    """Peak of all tensors in a script's first steps on a CPU, in a process of its own.

    Raises:
        UserError: it failed; the text ends with what it said.
    """
    with tempfile.TemporaryDirectory(prefix="labkit-") as folder:
        content = replace(command, runs_dir=folder, device="cpu").to_dict()
        with Child("labkit.collocation.memory.score", content) as child:
            counted = next((message["bytes"] for message in child.messages() if message["kind"] == "Counted"), None)
            if counted is None:
                said = child.last_words().strip().splitlines()[-1:]
                raise UserError(f"{command.script}: the process that counts its tensors failed: {''.join(said)}")
    return counted


def main() -> None:
    from torch.profiler import ProfilerActivity, profile

    from labkit.tracking.script import run_command
    from labkit.tracking.stop import StopRequest

    parent, steps = Parent(), itertools.count(1)
    command = ScriptCommand.from_dict(parent.content)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run_command(command, StopRequest(), lambda event: None, on_step=lambda: next(steps) == STEPS)
    events = sorted(profiler.profiler.kineto_results.events(), key=lambda event: event.start_ns())
    changes = [event.nbytes() for event in events if event.name() == "[memory]"]
    parent.tell("Counted", bytes=max(itertools.accumulate(changes)))


if __name__ == "__main__":
    main()

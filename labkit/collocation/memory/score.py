"""What ways of predicting a job's memory are worth, beside what it takes; for the kit's jobs with plain kernels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from labkit.errors import UserError
from labkit.jobs.command import job_command

if TYPE_CHECKING:
    import pandas as pd

METHODS = ("formula", "torch's tracker", "Horus' formula")
PROCESS = "the whole process"
"""Stands where a method does: nothing predicts it, and what was measured is of all of the process"""


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

    from labkit.collocation.memory.formula import formula
    from labkit.collocation.memory.horus import horus_estimate
    from labkit.collocation.memory.tracker import tracked_bytes
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

    from labkit.collocation.memory.counted import counted_bytes
    from labkit.collocation.memory.need import memory_need

    frames = []
    for job, settings in jobs:
        command = job_command(job, **settings)
        frame = estimates(job, **settings).assign(measured=counted_bytes(command))
        process = {"method": PROCESS, "predicted": None, "measured": memory_need(command, "cpu").first_steps_bytes}
        frames += [frame, frame.iloc[:1].assign(**process)]
    scored = pd.concat(frames, ignore_index=True).astype({"predicted": float, "measured": float})
    return scored.assign(**{"error_%": 100 * (scored["predicted"] / scored["measured"] - 1)})

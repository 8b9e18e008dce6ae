"""From the name of a job, or the path of a script, to the command that runs it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from labkit import UserError, errors, hardware, tracking
from labkit.jobs.job import Job, ScriptJob, as_flags
from labkit.jobs.settings import JOBS, DlrmJob, ShapeJob, TrainingJob

KITS_SCRIPTS = Path(__file__).parent
"""The folder of labkit's scripts, where a script is looked for last"""
KINDS: dict[str, type[Job]] = {**JOBS, ShapeJob.name: ShapeJob}
"""Every job whose settings labkit knows"""


def named_job(text: str) -> tuple[type[TrainingJob], str]:
    """Class and preset ("" where none is named) of one of labkit's jobs, such as dlrm:tour.

    Raises:
        UserError: there is no such job.
    """
    name, _, preset = (part.strip() for part in text.partition(":"))
    if name not in JOBS:
        raise UserError(f"job {name!r} is unknown: {errors.did_you_mean(name, JOBS)} A script's name ends in .py.")
    return JOBS[name], preset


def known_job(script: Path) -> type[Job] | None:
    """The job of a script, if it is one of labkit's own."""
    is_labkits = script.resolve().parent == KITS_SCRIPTS.resolve()
    return KINDS.get(script.stem) if is_labkits else None


def find_script(text: str, folders: Sequence[Path]) -> Path:
    """The first file of that name in the folders; a UserError where there is none."""
    looked = [folder / Path(text).expanduser() for folder in folders]
    if found := next(filter(Path.is_file, looked), None):
        return found
    places = " nor ".join(dict.fromkeys(map(str, looked)))
    counted = "the plan's folder" if folders[0] != Path() else "the working folder"
    raise UserError(f"there is no script {places}: check the path, which counts from {counted}.")


def why_slower(command: "tracking.ScriptCommand", count: int) -> str:
    """Why a job on several processes of this machine would be slower than on one; empty if there is no reason."""
    job = None if command.settings is None else job_from_json(command.settings)
    if not isinstance(job, DlrmJob) or count == 1 or job.sharding is not None:
        return ""
    if job.device == "auto" and len(hardware.get_devices()) > 1:
        return ""  # several GPUs were not measured
    return (
        f"{count} processes will probably be slower than one on the same cores: they exchange what a step changes in "
        "the tables. On two cores of an AMD EPYC two of them reached 0.8 times the samples per second of one at batch "
        "size 4,096, and 0.4 times at 512 (recorded). Omit --nproc, unless you test for several machines."
    )


def job_from_json(data: Mapping[str, Any]) -> Job | ScriptJob:
    """The job that `to_json` gave this data of."""
    settings = data["settings"]
    if data["job"] == ScriptJob.name:
        return ScriptJob(**settings | {"arguments": tuple(settings["arguments"])})
    return KINDS[data["job"]].from_settings(settings)


def job_command(
    job: str,
    *,
    budget: str | None = None,
    runs_dir: Path | str = "runs",
    sample_hz: float | None = None,
    **settings: Any,
) -> "tracking.ScriptCommand":
    """The command of a job: "dlrm", "speech", or the path of a script, with its settings by name.

    >>> job_command("dlrm", seed=1, max_seconds=None).arguments
    ('--seed', '1')
    """
    kind = KINDS.get(job) or known_job(Path(job))
    if kind is None and not Path(job).is_file():
        raise UserError(f"job {job!r} is unknown: choose one of {', '.join(JOBS)}, or name a Python file.")
    described = ScriptJob(job, as_flags(settings)) if kind is None else kind.from_settings(settings)
    bound = budget and hardware.parse_budget(budget)
    return described.command(runs_dir=str(runs_dir), budget=bound, sample_hz=sample_hz)

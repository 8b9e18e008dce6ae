"""Going on with a run that was stopped, killed, or given too little time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from labkit.errors import UserError
from labkit.runs import read_run
from labkit.training.request import TrainRequest

LIMITS = ("target", "max_seconds", "max_epochs")
"""What may change when a run is resumed; anything else would make it another run."""


def resumed_request(folder: Path, job: str, given: dict) -> TrainRequest:
    """The request of the run in `folder`, with the limits that are given anew.

    Args:
        folder: a run folder.
        job: the job the user named.
        given: fields of TrainRequest that the user set on the command line.

    Raises:
        UserError: the run is of another job, has nothing left to do, or more than limits is to change.
    """
    record = read_run(folder)
    request = TrainRequest.from_dict(record.config["request"])
    if request.job != job:
        raise UserError(
            f"{folder}: this run trains {request.job}: resume it with `labkit train {request.job} --resume`."
        )
    fixed = sorted(set(given) - set(LIMITS))
    if fixed:
        flags = ", ".join("--" + name.replace("_", "-") for name in fixed)
        raise UserError(
            f"{folder}: a resumed run keeps its own settings, so {flags} cannot be given: only "
            "--target, --max-seconds and --max-epochs may change. Leave the others out, or start a new run."
        )
    if record.status == "done" and not given:
        raise UserError(
            f"{folder}: this run is done ({record.result['reason']}): give it something to go on for, such as a "
            "larger --max-epochs or another --target."
        )
    if record.status == "failed":
        raise UserError(
            f"{folder}: this run failed, and going on from its last checkpoint with the same settings would fail "
            "again: start a new run with another --lr."
        )
    return replace(request, **given)

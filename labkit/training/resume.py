"""Going on with a run that was stopped, killed, or given too little time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from labkit.errors import UserError
from labkit.hardware.device import Device
from labkit.runs import read_events, read_run
from labkit.training.request import TrainRequest

LIMITS = ("target", "max_seconds", "max_epochs")
"""What may change when a run is resumed; anything else would make it another run."""


def resumed_request(folder: Path, job: str, given: dict) -> TrainRequest:
    """The request of the run in `folder`, with the limits that are given anew; budget and precision are as they were.

    Args:
        folder: a run folder.
        job: the job the user named.
        given: fields of TrainRequest that the user set on the command line.

    Raises:
        UserError: the run is of another job, has nothing left to do, or more than limits is to change.
    """
    record = read_run(folder)
    if record.profiled:
        raise UserError(f"{folder}: this run was made to be profiled, and has no checkpoint: start a new run.")
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
    if record.status == "failed" and any(event.get("kind") == "diverged" for event in read_events(folder)):
        raise UserError(
            f"{folder}: this run diverged, and going on from its last checkpoint with the same settings would fail "
            "again: start a new run with another --lr."
        )
    if "max_epochs" in given and record.config["train"]["schedule"] == "cosine":
        raise UserError(
            f"{folder}: the learning rate of preset {request.preset!r} falls to zero over max_epochs "
            f"{record.config['train']['max_epochs']}, so another number would make it jump: leave --max-epochs out, or "
            "start a new run with it."
        )
    events = read_events(folder)
    spent = {
        "max_seconds": max((event.get("wall_s", 0.0) for event in events), default=0.0),
        "max_epochs": max((event["epoch"] for event in events if event["event"] == "epoch"), default=0),
    }
    for name, used in spent.items():
        if name in given and given[name] <= used:
            raise UserError(
                f"{folder}: this run has used {used:.4g} of {name} already, which counts from its beginning: give "
                f"--{name.replace('_', '-')} more than that."
            )
    pinned = {
        "budget": record.budget["name"],
        "precision": record.config["train"]["precision"],
        "compiled_tables": record.config["train"].get("compiled_tables", False),
    }
    return replace(request, **pinned, **given)


def refuse_another_run(folder: Path, described: dict[str, Any], device: Device) -> None:
    """Stop a resume that would mix two experiments in one run.

    Args:
        folder: the run to go on with.
        described: the configuration it would go on with.
        device: what it would compute on.

    Raises:
        UserError: the data, the budget's size, the device or the kind of step is another one.
    """
    record = read_run(folder)
    if record.config["data"]["fingerprint"] != described["data"]["fingerprint"]:
        raise UserError(
            f"{folder}: the data {described['data']['name']!r} has changed since this run began, so going on would mix "
            "two datasets: start a new run."
        )
    before, now = record.budget, described["budget"]
    was, is_ = (
        f"{name}, {'all' if budget['cores'] is None else budget['cores']} cores"
        for name, budget in ((record.devices[-1]["name"], before), (device.name, now))
    )
    if was != is_:
        raise UserError(
            f"{folder}: this run computed on {was}, and budget {now['name']!r} is {is_} here, so its times would mix "
            "two machines: resume it where it began, or start a new run."
        )
    if record.config["train"].get("compiled_tables", False) and not described["train"]["compiled_tables"]:
        raise UserError(
            f"{folder}: this run updated its tables with compiled kernels, and now cannot ({described['step_note']}), "
            "so its times would mix two ways: mend that, or start a new run."
        )

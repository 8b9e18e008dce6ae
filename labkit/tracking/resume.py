"""What a run that is gone on with must have in common with itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from labkit.errors import UserError
from labkit.hardware.budgets.budget import Budget
from labkit.hardware.devices import get_devices
from labkit.runs import RunRecord
from labkit.runs.private import shielded

LIMITS = {"train.target", "train.target_metric", "train.higher_is_better", "train.max_seconds"}
"""What may change when a run is resumed, as may max_epochs, which is told later."""
TOLD = {"threads_wait", "arguments", "script", "step_note", "confirm_evaluations", "resume", "runs_dir", "budget"}
TOLD |= {"keeps", "max_epochs"}
"""What is recorded and decides nothing, or is told later; a resumed run keeps the name of its budget."""


def refuse_another_run(before: RunRecord, described: dict[str, Any], folder: Path) -> None:
    """Stop a resume that, configured as it is `described` now, would mix two experiments in one run."""
    if before.profiled:
        raise UserError(f"{folder}: this run was made to be profiled, and has no checkpoint: start a new run.")
    if "collocation" in before.config:
        raise UserError(
            f"{folder}: this run is one of the jobs of {folder.parent.name}, and alone its times would be others: go "
            "on with all of a group by `labkit collocate --resume`, or start a new run."
        )
    old, new = (_settings(shielded(config)) for config in (before.config, json.loads(json.dumps(described))))
    changed = {name for name in {*old, *new} if old.get(name) != new.get(name)}
    others = sorted(changed - LIMITS)
    if "data.fingerprint" in others:
        raise UserError(
            f"{folder}: the data {new.get('data.name')!r} has changed since this run began, so going on would mix two "
            "datasets: put back what it was, or start a new run."
        )
    if others:
        told = "; ".join(f"{name} was {old.get(name)!r} and is {new.get(name)!r}" for name in others[:4])
        raise UserError(
            f"{folder}: a resumed run keeps its own settings, and {told}: only target, max_seconds and max_epochs may "
            "change. Put the others back, in the script or on the command line, or start a new run."
        )
    if (before.result or {}).get("ended_by") == "diverged":
        raise UserError(f"{folder}: this run diverged and would again: start a new run with another learning rate.")
    if before.status == "done" and not changed and "max_epochs" not in before.config.get("train", {}):
        raise nothing_to_do(folder, (before.result or {}).get("reason", ""))


def refuse_another_machine(before: RunRecord, budget: Budget, folder: Path) -> None:
    """Stop a resume on other hardware than the run began on, or on more or fewer cores of it."""
    cpu, *others = get_devices()
    devices = [cpu.name, *(device.name for device in others if device.torch_name == budget.torch_name)]
    was = *(device["name"] for device in before.devices), f"{before.budget['cores'] or 'all'} cores"
    here = *devices, f"{budget.cores or 'all'} cores"
    if was != here:
        raise UserError(
            f"{folder}: this run computed on {', '.join(was)}, and would go on on {', '.join(here)}, so its times "
            "would mix two machines: resume it where it began, or start a new run."
        )


def nothing_to_do(folder: Path, why: str) -> UserError:
    """The error of a resume that would not train, and `why`."""
    return UserError(
        f"{folder}: this run is done ({why}): give it something to go on for, such as a larger --max-epochs or another "
        "--target; limits count from its beginning."
    )


def _settings(config: dict[str, Any], section: str = "") -> dict[str, Any]:
    """What decides a run, by name; of sections "train.lr"."""
    settings = {}
    for name in config.keys() - TOLD:
        value = config[name]
        settings |= _settings(value, f"{section}{name}.") if isinstance(value, dict) else {f"{section}{name}": value}
    return settings

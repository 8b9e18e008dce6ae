"""What a run that is gone on with must have in common with itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from labkit.errors import UserError
from labkit.runs import RunRecord, read_events
from labkit.runs.private import shielded

LIMITS = {"train.target", "train.target_metric", "train.higher_is_better", "train.max_seconds"}
"""What may change when a run is resumed, as may max_epochs, which is told later."""
TOLD = {"threads_wait", "arguments", "script", "step_note", "confirm_evaluations", "resume", "runs_dir", "budget"}
"""What is recorded and decides nothing: a resumed run keeps the name of its budget."""
TOLD_LATER = {"keeps", "max_epochs"}


def refuse_another_run(before: RunRecord, described: dict[str, Any], folder: Path) -> bool:
    """Stop a resume that would mix two experiments in one run, or that has nothing to do.

    Returns:
        Whether the configuration as it is `described` now has another target or another time to go on for.

    Raises:
        UserError: it says what differs.
    """
    if before.profiled:
        raise UserError(f"{folder}: this run was made to be profiled, and has no checkpoint: start a new run.")
    if "collocation" in before.config:
        raise UserError(
            f"{folder}: this run is one of the jobs of {folder.parent.name}, and alone its times would be others: go "
            "on with all of a group by `labkit collocate --resume`, or start a new run."
        )
    old, new = (_settings(shielded(config)) for config in (before.config, json.loads(json.dumps(described))))
    changed = {name for name in {*old, *new} if old.get(name) != new.get(name)}
    limits, others = changed & LIMITS, sorted(changed - LIMITS)
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
    if before.status == "done" and not limits and _epochs(before) is None:
        raise _nothing_to_do(before, folder)
    if (before.result or {}).get("ended_by") == "diverged":
        raise UserError(
            f"{folder}: this run diverged, and going on from its last checkpoint with the same settings would fail "
            "again: start a new run with another learning rate."
        )
    used_s = max((event.get("wall_s", 0.0) for event in read_events(folder)), default=0.0)
    most_s = new["train.max_seconds"] if "train.max_seconds" in limits else None
    if most_s is not None and most_s <= used_s:
        raise _used(folder, "max_seconds", used_s)
    return bool(limits)


def refuse_used_epochs(before: RunRecord, folder: Path, epochs: int, count: int, has_another_limit: bool) -> None:
    """Stop a resume that is given as many epochs as it had, or another number, all of which it has trained.

    Raises:
        UserError: there is nothing to go on for.
    """
    if count == _epochs(before):
        if before.status == "done" and not has_another_limit:
            raise _nothing_to_do(before, folder)
    elif count <= epochs:
        raise _used(folder, "max_epochs", epochs)


def _epochs(before: RunRecord) -> int | None:
    return before.config.get("train", {}).get("max_epochs")


def _nothing_to_do(before: RunRecord, folder: Path) -> UserError:
    return UserError(
        f"{folder}: this run is done ({(before.result or {}).get('reason', '')}): give it something to go on for, "
        "such as a larger --max-epochs or another --target."
    )


def _used(folder: Path, limit: str, used: float) -> UserError:
    return UserError(
        f"{folder}: this run has used {used:.4g} of {limit} already, which counts from its beginning: give "
        f"--{limit.replace('_', '-')} more than that."
    )


def _settings(config: dict[str, Any], section: str = "") -> dict[str, Any]:
    """What decides a run, by name; of sections "train.lr"."""
    settings = {}
    for name in config.keys() - TOLD - TOLD_LATER:
        value = config[name]
        settings |= _settings(value, f"{section}{name}.") if isinstance(value, dict) else {f"{section}{name}": value}
    return settings

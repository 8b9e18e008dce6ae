"""What a run that is gone on with must have in common with itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from labkit.errors import UserError
from labkit.runs import RunRecord, read_events
from labkit.runs.private import shielded

LIMITS = ("target", "target_metric", "higher_is_better", "max_seconds")
"""What may change when a run is resumed, as may max_epochs, which is told later."""
TOLD = (
    *("budget", "threads_wait", "arguments", "script", "step_note", "confirm_evaluations", "resume", "runs_dir"),
    *("keeps", "max_epochs"),
)
"""What is recorded and decides nothing, or is checked elsewhere."""


def refuse_another_run(before: RunRecord, described: dict[str, Any], folder: Path) -> bool:
    """Stop a resume that would mix two experiments in one run, or that has nothing to do.

    Args:
        before: the record as the earlier process left it.
        described: the configuration that it would go on with.
        folder: the run's.

    Returns:
        Whether it has another target or another time to go on for.

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
    changes = list(_changes(shielded(before.config), json.loads(json.dumps(shielded(described)))))
    limits = {name: new for name, _, new in changes if name in LIMITS}
    others = [change for change in changes if change[0] not in LIMITS]
    if any(name == "fingerprint" for name, _, _ in others):
        name = described.get("data", {}).get("name")
        raise UserError(
            f"{folder}: the data {name!r} has changed since this run began, so going on would mix two datasets: start "
            "a new run."
        )
    if others:
        what = "; ".join(f"{name} was {old!r} and is {new!r}" for name, old, new in others[:4])
        raise UserError(
            f"{folder}: a resumed run keeps its own settings, and {what}: only target, max_seconds and max_epochs "
            "may change. Put the others back, in the script or on the command line, or start a new run."
        )
    if before.status == "done" and not limits and _epochs(before) is None:
        raise _nothing_to_do(before, folder)
    events = read_events(folder)
    if before.status == "failed" and any(event.get("kind") == "diverged" for event in events):
        raise UserError(
            f"{folder}: this run diverged, and going on from its last checkpoint with the same settings would fail "
            "again: start a new run with another learning rate."
        )
    used, most = max((event.get("wall_s", 0.0) for event in events), default=0.0), limits.get("max_seconds")
    if most is not None and most <= used:
        raise _used(folder, "max_seconds", used)
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


def _changes(before: dict[str, Any], now: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """(name, before, now) of the settings that differ, in sections, too."""
    for name in sorted({*before, *now} - {*TOLD}):
        old, new = before.get(name), now.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _changes(old, new)
        elif old != new:
            yield name, old, new

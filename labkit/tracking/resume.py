"""What a run that is gone on with must have in common with itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from labkit.errors import UserError
from labkit.runs import RunRecord, read_events
from labkit.runs.private import shielded

LIMITS = {"target", "target_metric", "higher_is_better", "max_seconds"}
"""What may change when a run is resumed, as may max_epochs, which is told later."""
TOLD = {"budget", "threads_wait", "arguments", "script", "step_note", "confirm_evaluations", "resume", "runs_dir"}
"""What is recorded and decides nothing, or is checked elsewhere."""
TOLD_LATER = {"keeps", "max_epochs"}


def refuse_another_run(before: RunRecord, described: dict[str, Any], folder: Path) -> bool:
    """Stop a resume that would mix two experiments in one run, or that has nothing to do.

    Returns:
        Whether the configuration as it is `described` now has another target or another time to go on for.

    Raises:
        UserError: it says what differs.
    """

    def refuse(why: str) -> None:
        raise UserError(f"{folder}: {why}, or start a new run.")

    if before.profiled:
        raise UserError(f"{folder}: this run was made to be profiled, and has no checkpoint: start a new run.")
    if "collocation" in before.config:
        refuse(
            f"this run is one of the jobs of {folder.parent.name}, and alone its times would be others: go on with all "
            "of a group by `labkit collocate --resume`"
        )
    changes = list(_changes(shielded(before.config), json.loads(json.dumps(shielded(described)))))
    limits = {name: new for name, _, new in changes if name in LIMITS}
    others = {name: f"{name} was {old!r} and is {new!r}" for name, old, new in changes if name not in LIMITS}
    if "fingerprint" in others:
        refuse(
            f"the data {described['data'].get('name')!r} has changed since this run began, so going on would mix two "
            "datasets: put back what it was"
        )
    if others:
        refuse(
            f"a resumed run keeps its own settings, and {'; '.join([*others.values()][:4])}: only target, max_seconds "
            "and max_epochs may change. Put the others back, in the script or on the command line"
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
    for name in sorted({*before, *now} - TOLD - TOLD_LATER):
        old, new = before.get(name), now.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _changes(old, new)
        elif old != new:
            yield name, old, new

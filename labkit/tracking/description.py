"""What a run's record says of it: its configuration, and what it came to."""

from __future__ import annotations

from typing import Any

from labkit.tracking.crossings import Crossings
from labkit.tracking.goal import Target
from labkit.tracking.position import Position


def describe(name: str, config: dict[str, Any], target: Target | None, settings: dict[str, Any]) -> dict[str, Any]:
    """The configuration of a run, as `run.json` has it.

    Args:
        name: of the job.
        config: the script's own; entries that are dictionaries become sections beside "train".
        target: what is watched.
        settings: of the run itself, which go into "train".
    """
    sections = {key: value for key, value in config.items() if isinstance(value, dict)}
    own = {key: value for key, value in config.items() if not isinstance(value, dict)} | sections.pop("train", {})
    watched = {
        "target_metric": target and target.metric.name,
        "higher_is_better": target and target.metric.higher_is_better,
        "target": target and target.value,
    }
    return {"job": name, **sections, "train": {**own, **watched, **settings}}


def result_of(position: Position, target: Target | None, crossings: Crossings) -> dict[str, Any]:
    """What a run has come to."""
    first, sustained = crossings.first, crossings.sustained
    return {
        "target_reached": None if target is None or target.value is None else first is not None,
        "time_to_target_s": first and first.wall_s,
        "samples_to_target": first and first.samples,
        "sustained_time_to_target_s": sustained and sustained.wall_s,
        "samples_per_s": position.samples_per_s if position.samples else None,
        "best_validation": position.best_value,
        "samples": position.samples,
        "steps": position.step,
        "wall_s": position.wall_s,
        "train_s": position.train_s,
    }

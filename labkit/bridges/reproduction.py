"""A run that was done again, next to the earlier one: what differs in how they were made, and in what came of them."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from labkit import runs
from labkit.bridges.logged import flattened

NO_SETTINGS = {"script", "arguments", "collocation", "sweep", "trial", "budget", "imported", "profile"}
TIMES = ("time_to_target_s", "wall_s", "train_s", "samples_per_s", "energy_j", "peak_memory_bytes")
"""Results that are compared as a ratio"""
VALUES = ("best_validation", "samples_to_target", "steps", "samples")


class Difference(NamedTuple):
    """One thing that is not as it was."""

    what: str
    was: Any
    now: Any
    distance: str = ""
    """How far apart they are, for results"""


def differences(old: runs.RunRecord, new: runs.RunRecord) -> list[Difference]:
    """What differs in how two runs were made: program, versions, hardware, data, seed, budget and settings."""
    pairs = {
        "labkit": (old.provenance.by, new.provenance.by),
        "commit of labkit": (old.git_commit, new.git_commit),
        "seed": (old.seed, new.seed),
        "budget": (old.budget.get("name"), new.budget.get("name")),
        "hardware": (_devices(old), _devices(new)),
        "driver": (_drivers(old), _drivers(new)),
    }
    for name in sorted(old.software.keys() | new.software.keys()):
        if name in old.software:  # a recording may keep some versions only
            pairs[f"version of {name}"] = old.software[name], new.software.get(name)
    configs = ({name: each for name, each in run.config.items() if name not in NO_SETTINGS} for run in (old, new))
    settings = list(map(flattened, configs))
    for name in sorted(settings[0].keys() | settings[1].keys()):
        pairs[f"setting {name}"] = settings[0].get(name), settings[1].get(name)
    return [Difference(what, was, now) for what, (was, now) in pairs.items() if was != now]


def _devices(record: runs.RunRecord) -> str:
    parts = [(str(each.get("name")), each.get("cores")) for each in record.devices]
    return ", ".join(f"{name} ({cores:g} cores)" if cores else name for name, cores in parts)


def _drivers(record: runs.RunRecord) -> str:
    found = (dict(each).get("driver_version") for each in record.devices)
    return ", ".join(str(each) for each in found if each)


def result_differences(old: Path, new: Path) -> list[Difference]:
    """What came of a run and of its repetition, with their distance; what neither has is left out."""
    was, now = (runs.read_run(folder) for folder in (old, new))
    rows = [Difference("status", was.status, now.status, "" if was.status == now.status else "another end")]
    results = [record.result or {} for record in (was, now)]
    for name in (*TIMES, *VALUES):
        pair = [result.get(name) for result in results]
        if pair == [None, None]:
            continue
        rows.append(Difference(name, *pair, _distance(*pair, is_ratio=name in TIMES)))
    frames = [dict(list(runs.read_metrics([folder]).groupby("name", sort=False))) for folder in (old, new)]
    return rows + [_series(str(name), frame, frames[1][name]) for name, frame in frames[0].items() if name in frames[1]]


def _distance(was: float | None, now: float | None, *, is_ratio: bool) -> str:
    if was is None or now is None:
        return "only one has it"
    if is_ratio:
        return f"{now / was:.3g} times" if was else ""
    return "the same" if was == now else f"{now - was:+.4g}"


def _series(name: str, was: Any, now: Any) -> Difference:
    """The last values of one series, and from which step on the two differ."""
    both = was[["step", "value"]].merge(now[["step", "value"]], on="step", suffixes=("_was", "_now"))
    first, second = both["value_was"].to_numpy(float), both["value_now"].to_numpy(float)
    apart = ~((first == second) | (np.isnan(first) & np.isnan(second)))
    if not len(both):
        said = "no step is in both"
    elif not apart.any():
        said = f"the same at all {len(both)} steps"
    else:
        largest = np.nanmax(np.abs(first - second)[apart]) if np.isfinite((first - second)[apart]).any() else np.inf
        said = f"the same until step {both['step'][int(np.argmax(apart))]}, then up to {largest:.3g} apart"
    return Difference(name, was["value"].iloc[-1], now["value"].iloc[-1], said)

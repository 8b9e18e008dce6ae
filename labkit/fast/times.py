"""What was measured of jobs on this machine, kept from run to run; readable without torch."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from filelock import FileLock

from labkit.data.store import prepared_root, read_json, write_json

PROBE = 7
"""Counts the ways of measuring: what an older labkit measured another way is not remembered."""


@dataclass(frozen=True)
class StepTimes:
    """Forward and backward pass of one job in each precision."""

    machine: str
    """Processor, instruction sets and torch"""
    job: str
    """Model, data and batch size"""
    step_time_ms: dict[str, float]
    """Best time in "fp32" and in "bf16", on one thread"""
    when: str
    """ISO 8601 date"""

    def __str__(self) -> str:
        times = ", ".join(f"{precision} {self.step_time_ms[precision]:.3g} ms" for precision in ("fp32", "bf16"))
        return f"forward and backward here: {times}; measured {self.when}"


def recall(machine: str, job: str) -> StepTimes | None:
    """The measurement of this job on this machine, if there is one."""
    return next((each for each in remembered() if (each.machine, each.job) == (machine, job)), None)


def remember(times: StepTimes) -> StepTimes:
    """Keep a measurement and return it, or the one of the same job that another process has kept meanwhile."""
    path = _path()
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(f".{path.name}.lock")):
        if before := recall(times.machine, times.job):
            return before
        write_json(path, {"probe": PROBE, "steps": [asdict(each) for each in [*remembered(), times]]})
        return times


def forget() -> int:
    """Drop all measurements, so that the next runs measure anew; return how many there were."""
    count = len(remembered())
    _path().unlink(missing_ok=True)
    return count


def remembered() -> list[StepTimes]:
    """All measurements, the latest last; none where the file is damaged or of another labkit."""
    try:
        content = read_json(_path()) or {"probe": None}
        return [StepTimes(**each) for each in content["steps"]] if content["probe"] == PROBE else []
    except (OSError, KeyError, TypeError):
        return []


def _path() -> Path:
    return prepared_root() / "steps.json"

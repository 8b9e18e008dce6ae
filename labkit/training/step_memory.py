"""What kinds of training step took on this machine, remembered from run to run; readable without torch."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from filelock import FileLock

from labkit.data.store import prepared_root

PROBE = 6
"""Counts the ways steps were probed in: what an older labkit measured another way is not remembered."""


@dataclass(frozen=True)
class StepTimes:
    """One measurement of the kinds of step of one job."""

    machine: str
    """Processor, instruction sets, threads and torch: with another one the answer may be another."""
    job: str
    """"dlrm" or "speech"."""
    shape: str
    """Model, batch size and optimiser."""
    candidates: list[str]
    """Kinds of step that could have been chosen, the plain one first."""
    step_time_ms: dict[str, float]
    """Best time of each kind that was tried, the plain one first; of all trials."""
    left_out: dict[str, str]
    """Kinds that could not be, or were not tried, and why."""
    chosen: str
    when: str
    """ISO 8601 date of the latest trial."""
    trials: int = 1
    """Runs that measured: the machine may have been busy once."""

    def __str__(self) -> str:
        times = ", ".join(f"{kind} {_short(took)} ms" for kind, took in self.step_time_ms.items())
        without = "".join(f"; not {kind}: {why}" for kind, why in self.left_out.items())
        return f"{self.chosen} (a step here: {times}{without}; measured {self.when})"

    def answers(self, machine: str, shape: str, candidates: list[str]) -> bool:
        """Whether this says which of the candidates to take."""
        return (self.machine, self.shape, self.candidates) == (machine, shape, candidates)


def recall(machine: str, shape: str, candidates: list[str]) -> StepTimes | None:
    """The measurement that chose between these kinds for this shape on this machine, if there is one."""
    return next((each for each in remembered() if each.answers(machine, shape, candidates)), None)


def remember(times: StepTimes) -> None:
    """Keep a measurement in place of an older one.

    Raises:
        OSError: the cache cannot be written.
    """
    path = _path()
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(f".{path.name}.lock")):  # several runs may start together
        others = [each for each in remembered() if not each.answers(times.machine, times.shape, times.candidates)]
        temporary = path.with_name(f"{path.name}.{os.getpid()}")
        content = {"probe": PROBE, "steps": [asdict(each) for each in [*others, times]]}
        temporary.write_text(json.dumps(content, indent=1), encoding="utf-8")
        temporary.replace(path)


def forget() -> int:
    """Drop all measurements, so that the next runs measure anew; return how many there were."""
    count = len(remembered())
    _path().unlink(missing_ok=True)
    return count


def remembered() -> list[StepTimes]:
    """All measurements, the latest last; none where the file is damaged or of another labkit."""
    try:
        content = json.loads(_path().read_text(encoding="utf-8"))
        return [StepTimes(**each) for each in content["steps"]] if content["probe"] == PROBE else []
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _short(number: float) -> str:
    return f"{number:.0f}" if number >= 100 else f"{number:.3g}"


def _path() -> Path:
    return prepared_root() / "steps.json"

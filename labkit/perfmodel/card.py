"""A machine's card: what was timed on it, as a JSON file that can be shared, and predicted from anywhere."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from labkit.errors import UserError
from labkit.hardware import Calibration
from labkit.perfmodel.kernels import KernelModel, Points, geometric_error
from labkit.perfmodel.operators import PHASES
from labkit.runs import replace_text

SCHEMA = 4
ALL = "all"
"""Stands for every job together"""
POOR = 0.3
"""An error of predicted steps from which a card is called poor"""
INSIDE = 0.9
"""Of steps, that a prediction's interval is to hold"""


@dataclass(frozen=True)
class Overheads:
    """What a step takes beyond its operators: on a CPU T1, the time between them, for there is one timeline."""

    step_us: float
    """For each step"""
    calls_us: tuple[float, float, float]
    """For each operator, by phase"""

    def seconds(self, calls: Mapping[str, int]) -> float:
        """Of a step with so many operators by phase."""
        of_calls = sum(us * calls[phase] for us, phase in zip(self.calls_us, PHASES, strict=True))
        return (self.step_us + of_calls) / 1e6


@dataclass(frozen=True)
class Card:
    """What is known of a machine."""

    device: str
    tier: str | None
    """Of the catalogue, whose price and power count"""
    threads: int
    """CPU threads that computed"""
    software: dict[str, str]
    when: str
    """ISO 8601 date"""
    took_s: float
    limits: Calibration
    caches: tuple[float, float]
    """Bytes of the second- and last-level cache of the cores that computed"""
    noise: float
    """How far the reference, a step that was taken between all others, came to lie from its median, as a geometric
    mean: 0.05 is 5 %"""
    accelerators: dict[str, Any]
    """Of the GPUs, of `labkit.perfmodel.accelerators.measure_accelerators`; empty without any"""
    kernels: dict[str, Points]
    """By kind of operator"""
    overheads: dict[str, Overheads]
    """By job, and of all"""
    misses: dict[str, list[float]]
    """By job: the logarithms of measured ÷ predicted, each of a step that its prediction had not seen"""
    shared: dict[str, list[float]]
    """The same of predictions with the overheads of all jobs together"""
    kinds: dict[str, tuple[float, float]]
    """By kind that several steps have: the geometric error of operators that its model had not seen, and its share of
    all time"""

    @cached_property
    def models(self) -> dict[str, KernelModel]:
        speed = self.limits.bandwidth_gb_per_s
        return {kind: KernelModel(points, self.caches, speed) for kind, points in self.kernels.items()}

    def bias(self, job: str) -> float:
        """Measured ÷ predicted, the median of steps that had not been seen: what operators and overheads leave out."""
        misses = self._misses(job)
        return math.exp(float(np.median(misses))) if misses else 1.0

    def error(self, job: str) -> float:
        """How far off predictions are of steps that had not been seen, as a geometric mean.

        The bias that is taken out of each is that of the others.
        """
        return geometric_error(_without_bias(self._misses(job)))

    @property
    def is_poor(self) -> bool:
        """Whether predictions of some job's steps are too far off to be trusted."""
        return max(map(self.error, self.misses)) > POOR

    def shared_error(self, job: str) -> float:
        """The same with overheads, and a bias, of all jobs together."""
        left = iter(_without_bias(self._misses(ALL)))
        return geometric_error({name: [next(left) for _ in own] for name, own in self.shared.items()}[job])

    def _misses(self, job: str) -> list[float]:
        """A job's; those with shared overheads for any that was not timed."""
        return self.misses.get(job) or [miss for own in self.shared.values() for miss in own]

    def interval(self, job: str, outside: float = 0.0) -> tuple[float, float]:
        """What a predicted time, its bias taken out, is multiplied by for the ends of its interval.

        It is where nine of ten trainings' usual steps lay, of those that had not been seen.

        Args:
            job: one that was timed; any other counts as all of them.
            outside: the share of the time that is of operators beyond what was timed. It widens the interval.
        """
        misses = self._misses(job)
        if not misses:
            return 0.5, 2.0
        misses = np.array(misses) - np.median(misses)
        rank = min(1.0, (1 + INSIDE) / 2 * (len(misses) + 1) / len(misses))  # as in conformal prediction
        low, high = np.quantile(misses, 1 - rank, method="lower"), np.quantile(misses, rank, method="higher")
        wider = math.log(2) * outside
        return math.exp(min(low, 0.0) - wider), math.exp(max(high, 0.0) + wider)

    def save(self, path: Path) -> None:
        told = {"schema": SCHEMA} | {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        told["limits"] = dataclasses.asdict(self.limits)
        told["kernels"] = {kind: points.to_json() for kind, points in self.kernels.items()}
        told["overheads"] = {job: dataclasses.asdict(each) for job, each in self.overheads.items()}
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = (f"{json.dumps(name)}: {_text(value)}" for name, value in told.items())
        replace_text(path, "{\n" + ",\n".join(lines) + "\n}\n")


def _without_bias(misses: Sequence[float]) -> list[float]:
    """How far each lies from the median of the others."""
    if len(misses) < 2:
        return list(misses)
    return [miss - float(np.median(np.delete(misses, place))) for place, miss in enumerate(misses)]


def _text(value: Any) -> str:
    """JSON with a line for each entry of a table."""
    if not isinstance(value, dict) or not any(isinstance(each, (dict, list, tuple)) for each in value.values()):
        return json.dumps(value)
    return "{\n " + ",\n ".join(f"{json.dumps(name)}: {json.dumps(each)}" for name, each in value.items()) + "\n}"


def read_card(path: Path) -> Card:
    """A card that `labkit calibrate` wrote.

    Raises:
        UserError: there is none, or it is no card, or that of another version of labkit.
    """
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"there is no card {path}: `labkit calibrate --out {path}` makes one.", field="card") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        where = f"line {error.lineno}" if isinstance(error, json.JSONDecodeError) else "it"
        raise UserError(f"{path}: {where} cannot be read as a card ({error}): calibrate anew.", field="card") from None
    if not isinstance(told, dict) or told.pop("schema", None) != SCHEMA:
        raise UserError(
            f"{path}: this is no card of this version of labkit: `labkit calibrate` on that machine makes one anew.",
            field="card",
        )
    try:
        return Card(
            **told
            | {
                "limits": Calibration(**told["limits"]),
                "caches": tuple(told["caches"]),
                "kernels": {kind: Points.from_json(points) for kind, points in told["kernels"].items()},
                "overheads": {
                    job: Overheads(each["step_us"], tuple(each["calls_us"])) for job, each in told["overheads"].items()
                },
                "kinds": {kind: tuple(each) for kind, each in told["kinds"].items()},
            }
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        words = f"{type(error).__name__}: {error}"
        raise UserError(f"{path}: this card is damaged ({words}): calibrate anew.", field="card") from None

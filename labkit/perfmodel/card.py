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
from labkit.hardware.calibration import Calibration
from labkit.perfmodel.kernels import KernelModel, Points, geometric_error
from labkit.perfmodel.operators import PHASES

SCHEMA = 3
DEFAULT = Path("card.json")
ALL = "all"
"""Stands for every job together"""
INSIDE = 0.9
"""Of steps, that a prediction's interval is to hold"""


@dataclass(frozen=True)
class Overheads:
    """What a step takes beyond its operators: on a CPU T1, the time between them, for there is one timeline."""

    call_us: float
    """For each operator"""
    shares: tuple[float, float, float]
    """For each second of operators, by phase"""

    def seconds(self, calls: float, phases_s: Mapping[str, float]) -> float:
        shares = sum(share * phases_s[phase] for share, phase in zip(self.shares, PHASES, strict=True))
        return calls * self.call_us / 1e6 + shares


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
    reference_ms: float
    """The median of the reference, a step that was taken between all others"""
    noise: float
    """How far the reference came to lie from it, as a geometric mean: 0.05 is 5 %"""
    accelerators: dict[str, Any]
    """Of the GPUs, of `labkit.perfmodel.accelerators.measure_accelerators`; empty without any"""
    kernels: dict[str, Points]
    """By kind of operator"""
    overheads: dict[str, Overheads]
    """By job, and of all"""
    misses: dict[str, list[float]]
    """By job: the logarithms of measured ÷ predicted, each of a step that its prediction had not seen"""
    shared: dict[str, float]
    """By job: how far off such predictions are with the overheads of all jobs together, as a geometric mean"""
    kinds: dict[str, tuple[float, float]]
    """By kind: the geometric error of operators that its model had not seen, and its share of all time"""

    @cached_property
    def models(self) -> dict[str, KernelModel]:
        speed = self.limits.bandwidth_gb_per_s
        return {kind: KernelModel(points, self.caches, speed) for kind, points in self.kernels.items()}

    def bias(self, job: str) -> float:
        """Measured ÷ predicted, the median of steps that had not been seen: what operators and overheads leave out."""
        misses = self._misses(job)
        return math.exp(float(np.median(misses))) if misses else 1.0

    def error(self, job: str) -> float:
        """How far off predictions are of steps that had not been seen, their bias taken out, as a geometric mean."""
        return unbiased_error(self._misses(job))

    def _misses(self, job: str) -> list[float]:
        return self.misses.get(job) or [miss for own in self.misses.values() for miss in own]

    def interval(self, job: str, outside: float = 0.0) -> tuple[float, float]:
        """What a predicted time, its bias taken out, is multiplied by for the ends of its interval.

        It is where steps lay that had not been seen (split conformal prediction, Lei et al., JASA 2018, §2.2).

        Args:
            job: one that was timed; any other counts as all of them.
            outside: the share of the time that is of operators beyond what was timed. It widens the interval.
        """
        misses = self._misses(job)
        if not misses:
            return 0.5, 2.0
        misses = np.array(misses) - np.median(misses)
        rank = min(1.0, (1 + INSIDE) / 2 * (len(misses) + 1) / len(misses))
        low, high = np.quantile(misses, [1 - rank, rank])
        wider = math.log(2) * outside
        return math.exp(min(low, 0.0) - wider), math.exp(max(high, 0.0) + wider)

    def save(self, path: Path) -> None:
        told = {"schema": SCHEMA} | {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        told["limits"] = dataclasses.asdict(self.limits)
        told["kernels"] = {kind: points.to_json() for kind, points in self.kernels.items()}
        told["overheads"] = {job: dataclasses.asdict(each) for job, each in self.overheads.items()}
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = (f"{json.dumps(name)}: {_text(value)}" for name, value in told.items())
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def unbiased_error(misses: Sequence[float]) -> float:
    """The geometric mean of how far each lies from their median; NaN without any."""
    return geometric_error(np.array(misses) - np.median(misses)) if len(misses) else math.nan


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
                    job: Overheads(each["call_us"], tuple(each["shares"])) for job, each in told["overheads"].items()
                },
                "kinds": {kind: tuple(each) for kind, each in told["kinds"].items()},
            }
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        words = f"{type(error).__name__}: {error}"
        raise UserError(f"{path}: this card is damaged ({words}): calibrate anew.", field="card") from None

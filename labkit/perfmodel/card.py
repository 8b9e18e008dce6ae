"""A machine's card: what was timed on it, as a JSON file that can be shared, and predicted from anywhere.

Its kernel models learn how long an operator takes from operators of the same kind that were timed. First comes physics:
a constant, and costs per floating-point operation, per row looked up and per byte; bytes beyond the second- and the
last-level cache cost more (three regimes of bandwidth). The costs are fitted and never negative. Then a plane through
the logarithms of all sizes, and gradient boosting of its errors, correct the physics: as Lin et al., arXiv 2201.07821,
learn kernels that no formula describes.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from labkit import UserError, hardware, json_data, runs
from labkit.perfmodel.operators import PHASES, Operator

TENSORS, DIMENSIONS, NUMBERS = 4, 4, 4
"""Numbers of tensors, of their sizes, and of numeric arguments that are features of an operator"""
SIZES = ("flop", "bytes", "table_bytes", "row_bytes", "lookups", "distinct")
FEATURES = (
    *SIZES,
    "phase",
    "tensors",
    *(f"size_{tensor}_{place}" for tensor in range(TENSORS) for place in range(DIMENSIONS)),
    *(f"{what}_{tensor}" for what in ("is_plain", "width") for tensor in range(TENSORS)),
    *(f"number_{place}" for place in range(NUMBERS)),
)
ABSENT = -1.0
LARGEST_NUMBER = 1e6
FEWEST = 8
"""Least number of points for boosting"""
FASTEST_S = 1e-7
ANCHOR_BYTES = 2**26
SMOOTHINGS = np.logspace(-2, 3, 10)
"""Smoothings of the plane through the logarithms; cross-validation chooses one"""


def features_of(operator: Operator) -> tuple[float, ...]:
    """One number per entry of `FEATURES`; sizes as they are, not their logarithms."""
    shown, numbers = operator.tensors[:TENSORS], [each for each in operator.numbers[:NUMBERS] if each == each]
    return (
        *(getattr(operator, name) for name in SIZES),
        PHASES.index(operator.phase),
        len(operator.tensors),
        *_padded([size for _, sizes, _ in shown for size in _padded(sizes, DIMENSIONS)], DIMENSIONS * TENSORS),
        *_padded([float(is_plain) for _, _, is_plain in shown], TENSORS),
        *_padded([float(getattr(torch, kind).itemsize) for kind, _, _ in shown], TENSORS),
        *_padded([max(-LARGEST_NUMBER, min(LARGEST_NUMBER, each)) for each in numbers], NUMBERS),
    )


def _padded(values: Sequence[float], count: int) -> Sequence[float]:
    return [*values[:count], *[ABSENT] * (count - len(values))]


@dataclass(frozen=True)
class Points:
    """Operators of one kind that were timed."""

    features: np.ndarray
    """float (N, FEATURES)"""
    times_s: np.ndarray
    """(N,)"""
    steps: np.ndarray = field(default_factory=lambda: np.zeros(0, int))
    """(N,): number of the step it belongs to"""

    def __len__(self) -> int:
        return len(self.times_s)

    def where(self, chosen: np.ndarray) -> "Points":
        return Points(self.features[chosen], self.times_s[chosen], self.steps[chosen])

    def to_json(self) -> dict[str, Any]:
        """Columns; a value that all points share is written once."""
        columns = {
            name: values[0].item() if (values == values[0]).all() else [float(f"{value:.5g}") for value in values]
            for name, values in zip(FEATURES, self.features.T, strict=True)
        }
        return {"us": [float(f"{value * 1e6:.4g}") for value in self.times_s], **columns}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Points":
        times = np.array(content["us"], float) / 1e6
        columns = [np.broadcast_to(np.array(content[name], float), times.shape) for name in FEATURES]
        return cls(np.stack(columns, axis=1), times)


@dataclass(frozen=True)
class KernelModel:
    """Model of one kind of operators, fitted to points."""

    points: Points
    caches: tuple[float, float]
    """Bytes of the second- and the last-level cache of all cores that compute"""
    bandwidth_gb_per_s: float
    """Bandwidth of copies beyond all caches"""

    @cached_property
    def _costs(self) -> np.ndarray:
        from scipy.optimize import nnls

        features, times_s = self.points.features, self.points.times_s
        moved = FEATURES.index("bytes")
        if features[:, moved].max() < ANCHOR_BYTES / 4:
            # small operators do not show the cost of a byte in memory: a large copy at full bandwidth does
            anchor = np.zeros((1, len(FEATURES)))
            anchor[0, moved] = ANCHOR_BYTES
            features = np.vstack([features, anchor])
            times_s = np.append(times_s, ANCHOR_BYTES / self.bandwidth_gb_per_s / 1e9)
        parts = self._parts(features) / times_s[:, None]  # relative errors count
        scale = np.where(parts.max(0) > 0, parts.max(0), 1.0)
        return nnls(parts / scale, np.ones(len(parts)))[0] / scale

    @cached_property
    def _correction(self) -> Callable[[np.ndarray], Any]:
        """The learnt correction: a plane and boosting of its errors, or the median if there are too few points."""
        from sklearn.ensemble import GradientBoostingRegressor
        from sklearn.linear_model import RidgeCV
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        off = np.log(self.points.times_s) - np.log(self._physics(self.points.features))
        own = _logarithms(self.points.features)
        varies = np.ptp(own, axis=0) > 1e-6
        if len(off) < FEWEST or not varies.any():
            return lambda features: np.median(off)
        sizes = own[:, varies]
        plane = make_pipeline(StandardScaler(), RidgeCV(SMOOTHINGS)).fit(sizes, off)
        trees = GradientBoostingRegressor(
            n_estimators=100, max_depth=3, learning_rate=0.1, subsample=0.6, min_samples_leaf=4, max_features=0.5,
            random_state=0,
        ).fit(sizes, off - plane.predict(sizes))  # fmt: skip

        def correction(features: np.ndarray) -> np.ndarray:
            new = _logarithms(features)[:, varies]
            return np.clip(plane.predict(new) + trees.predict(new), off.min(), off.max())

        return correction

    def seconds(self, features: np.ndarray, arithmetic: float = 1.0, bandwidth: float = 1.0) -> np.ndarray:
        """Times (N,) of operators with features (N, FEATURES), on a machine faster by these factors."""
        return self._physics(features, arithmetic, bandwidth) * np.exp(self._correction(features))

    def is_known(self, features: np.ndarray) -> np.ndarray:
        """Whether each is within the timed range of arithmetic, bytes, tables and rows, up to a factor of two."""
        own, new = (_logarithms(each)[:, : len(SIZES)] for each in (self.points.features, features))
        return np.all((new >= own.min(0) - 1) & (new <= own.max(0) + 1), axis=1)

    def _physics(self, features: np.ndarray, arithmetic: float = 1.0, bandwidth: float = 1.0) -> np.ndarray:
        faster = np.array([1.0, arithmetic, 1.0, *[bandwidth] * 3])  # a call and a row looked up wait as before
        return np.maximum(self._parts(features) @ (self._costs / faster), FASTEST_S)

    def _parts(self, features: np.ndarray) -> np.ndarray:
        """(N, 6): the amounts that the costs are for: call, operations, rows, bytes, bytes beyond either cache."""
        flop, moved, table, row, lookups, distinct = features[:, : len(SIZES)].T
        reach = np.maximum(np.where(table > 0, distinct * row, moved), 1.0)
        beyond = [moved * np.maximum(0.0, 1 - cache / reach) for cache in self.caches]
        return np.stack([np.ones_like(flop), flop, lookups, moved, *beyond], axis=1)


def _logarithms(features: np.ndarray) -> np.ndarray:
    """Logarithms of sizes; numbers keep their signs."""
    return np.sign(features) * np.log2(1 + np.abs(features))


def geometric_error(misses: Sequence[float]) -> float:
    """Geometric mean of the size of errors, from the logarithms of measured ÷ predicted: 0.05 is 5 %."""
    return math.exp(float(np.mean(np.abs(misses)))) - 1


SCHEMA = 4
ALL = "all"
"""Name of all jobs together"""
POOR = 0.3
"""Error of predicted steps above which a card is called poor"""
INSIDE = 0.9
"""Share of steps that a prediction's interval should hold"""


@dataclass(frozen=True)
class Overheads:
    """Time of a step outside of its operators. A CPU has one timeline, so this is T1, the time between them."""

    step_us: float
    """Time per step"""
    calls_us: tuple[float, float, float]
    """Time per operator, by phase"""

    def seconds(self, calls: Mapping[str, int]) -> float:
        """Overheads of a step with this number of operators per phase."""
        of_calls = sum(us * calls[phase] for us, phase in zip(self.calls_us, PHASES, strict=True))
        return (self.step_us + of_calls) / 1e6


@dataclass(frozen=True)
class Card:
    """The measurements of a machine."""

    device: str
    tier: str | None
    """Entry of the catalogue, for price and power"""
    threads: int
    """Number of CPU threads that computed"""
    software: dict[str, str]
    when: str
    """ISO 8601 date"""
    took_s: float
    limits: "hardware.Calibration"
    caches: tuple[float, float]
    """Bytes of the second- and last-level cache of the cores that computed"""
    noise: float
    """Distance of the reference, a step repeated between all others, from its median, as a geometric mean: 0.05 is
    5 %"""
    kernels: dict[str, Points]
    """Timed operators, by kind"""
    overheads: dict[str, Overheads]
    """Overheads by job, and of all jobs"""
    misses: dict[str, list[float]]
    """Logarithms of measured ÷ predicted of held-out steps, by job"""
    shared: dict[str, list[float]]
    """The same for predictions with the overheads of all jobs together"""
    kinds: dict[str, tuple[float, float]]
    """Geometric error of held-out operators, and share of all time, by kind"""

    @cached_property
    def models(self) -> dict[str, KernelModel]:
        speed = self.limits.bandwidth_gb_per_s
        return {kind: KernelModel(points, self.caches, speed) for kind, points in self.kernels.items()}

    def bias(self, job: str) -> float:
        """Median of measured ÷ predicted of held-out steps: what operators and overheads do not explain."""
        return math.exp(float(np.median(self._misses(job))))

    def error(self, job: str) -> float:
        """Geometric mean error of held-out steps; the bias of the other steps is removed from each."""
        misses = self._misses(job)
        if len(misses) > 1:
            misses = [miss - float(np.median(np.delete(misses, place))) for place, miss in enumerate(misses)]
        return geometric_error(misses)

    @property
    def is_poor(self) -> bool:
        """Whether predictions of some job's steps are too inaccurate to trust."""
        return max(map(self.error, self.misses)) > POOR

    def _misses(self, job: str) -> list[float]:
        """A job's misses; for a job that was not timed, those with shared overheads."""
        return self.misses.get(job) or [miss for own in self.shared.values() for miss in own]

    def interval(self, job: str, outside: float = 0.0) -> tuple[float, float]:
        """Factors on a predicted time, its bias removed, for the ends of its interval.

        Nine out of ten held-out steps were within it.

        Args:
            job: one that was timed; any other counts as all of them.
            outside: share of the time in operators beyond the timed range, which widens the interval.
        """
        misses = np.array(self._misses(job))
        misses -= np.median(misses)
        rank = min(1.0, (1 + INSIDE) / 2 * (len(misses) + 1) / len(misses))  # as in conformal prediction
        low, high = np.quantile(misses, 1 - rank, method="lower"), np.quantile(misses, rank, method="higher")
        wider = math.log(2) * outside
        return math.exp(min(low, 0.0) - wider), math.exp(max(high, 0.0) + wider)

    def save(self, path: Path) -> None:
        content = {"schema": SCHEMA} | json_data.to_json(self)
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = (f"{json.dumps(name)}: {_text(value)}" for name, value in content.items())
        runs.replace_text(path, "{\n" + ",\n".join(lines) + "\n}\n")


def _text(value: Any) -> str:
    """JSON with one line per entry of a table."""
    if not isinstance(value, dict) or not any(isinstance(each, (dict, list, tuple)) for each in value.values()):
        return json.dumps(value)
    return "{\n " + ",\n ".join(f"{json.dumps(name)}: {json.dumps(each)}" for name, each in value.items()) + "\n}"


def _refuse_impossible(card: Card) -> None:
    """Raise a ValueError for numbers that no calibration finds, from which nonsense would be predicted."""
    limits, times_s = card.limits, [time_s for points in card.kernels.values() for time_s in points.times_s]
    beyond = [card.overheads[ALL], *card.overheads.values()]
    misses = [miss for own in (*card.misses.values(), card._misses("any other job") or [math.nan]) for miss in own]
    for name, numbers, least, most in (
        ("number of threads or speed", (card.threads, limits.fp32_gflops, limits.bandwidth_gb_per_s), 1e-3, 1e9),
        ("size of a cache", card.caches, 1, 1e15),
        ("time of an operator", times_s or [math.nan], 1e-12, 1e6),
        ("noise or overhead", [card.noise, *(us for each in beyond for us in (each.step_us, *each.calls_us))], 0, 1e9),
        ("miss", misses, -10, 10),  # a logarithm: 20,000 times too slow or too fast
    ):
        if not all(least <= number <= most for number in numbers):
            raise ValueError(f"no {name} is like that")


def read_card(path: Path) -> Card:
    """Read a card that `labkit calibrate` wrote.

    Raises:
        UserError: there is no card, or it is damaged or of another version of labkit.
    """
    try:
        content = json_data.parse_json(path.read_bytes())
        if not isinstance(content, dict) or content.get("schema") != SCHEMA:
            said = "this is not a card of this version of labkit: run `labkit calibrate` on that machine again."
        else:
            card = json_data.from_json(Card, content)
            _refuse_impossible(card)
            return card
    except FileNotFoundError:
        said = f"there is no card: make one with `labkit calibrate --out {path}`."
    except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        said = f"this card is damaged, or cannot be read ({type(error).__name__}: {error}): calibrate again."
    raise UserError(f"{path}: {said}", field="card")

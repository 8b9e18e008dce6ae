"""How long an operator takes, learnt from operators of its kind that were timed.

First physics: a constant, so much a floating-point operation, a row looked up, and a byte, of which those cost more
that no longer fit the second- or last-level cache (three regimes of bandwidth); the costs are fitted, none below zero.
Then a plane through the logarithms of all sizes, and gradient boosting of what it leaves, say how far off that is, as
Lin et al., arXiv 2201.07821, learn the kernels that no formula describes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from labkit.perfmodel.operators import PHASES, Operator

TENSORS, DIMENSIONS, NUMBERS = 4, 4, 4
"""Of an operator's arguments, these many tell: tensors, their sizes, and numbers"""
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
"""Points that boosting needs"""
FASTEST_S = 1e-7
ANCHOR_BYTES = 2**26
SMOOTHINGS = np.logspace(-2, 3, 10)
"""Of the plane through the logarithms, of which cross-validation takes one"""


def features_of(operator: Operator) -> tuple[float, ...]:
    """One number for each of `FEATURES`; sizes as they are, not their logarithms."""
    shown = operator.tensors[:TENSORS]
    gone = TENSORS - len(shown)
    numbers = [max(-LARGEST_NUMBER, min(LARGEST_NUMBER, each)) for each in operator.numbers[:NUMBERS] if each == each]
    return (
        *(getattr(operator, name) for name in SIZES),
        PHASES.index(operator.phase),
        len(operator.tensors),
        *(size for _, sizes, _ in shown for size in (*sizes, *[ABSENT] * DIMENSIONS)[:DIMENSIONS]),
        *[ABSENT] * DIMENSIONS * gone,
        *(float(is_plain) for _, _, is_plain in shown),
        *[ABSENT] * gone,
        *(float(_width(kind)) for kind, _, _ in shown),
        *[ABSENT] * gone,
        *numbers,
        *[ABSENT] * (NUMBERS - len(numbers)),
    )


def _width(kind: str) -> int:
    digits = "".join(filter(str.isdigit, kind))
    return int(digits) // 8 if digits else 1


@dataclass(frozen=True)
class Points:
    """Operators of one kind that were timed."""

    features: np.ndarray
    """float (N, FEATURES)"""
    times_s: np.ndarray
    """(N,)"""
    weights: np.ndarray = field(default_factory=lambda: np.ones(0))
    """(N,): how often each was called in its step"""
    steps: np.ndarray = field(default_factory=lambda: np.zeros(0, int))
    """(N,): the numbers of the steps that they are of"""

    def __len__(self) -> int:
        return len(self.times_s)

    def where(self, chosen: np.ndarray) -> Points:
        return Points(*(getattr(self, name)[chosen] for name in ("features", "times_s", "weights", "steps")))

    def to_json(self) -> dict[str, Any]:
        """Columns; what is the same for all points stands once."""
        columns = {
            name: values[0].item() if (values == values[0]).all() else [float(f"{value:.5g}") for value in values]
            for name, values in zip(FEATURES, self.features.T, strict=True)
        }
        return {"us": [float(f"{value * 1e6:.4g}") for value in self.times_s], **columns}

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Points:
        times = np.array(told["us"], float) / 1e6
        columns = [np.broadcast_to(np.array(told[name], float), times.shape) for name in FEATURES]
        return cls(np.stack(columns, axis=1), times)


@dataclass(frozen=True)
class KernelModel:
    """Of one kind of operators, fitted to points."""

    points: Points
    caches: tuple[float, float]
    """Bytes of the second- and the last-level cache of all cores that compute"""
    bandwidth_gb_per_s: float
    """Of copies beyond all caches"""

    @cached_property
    def _costs(self) -> np.ndarray:
        from scipy.optimize import nnls

        features, times_s = self.points.features, self.points.times_s
        moved = FEATURES.index("bytes")
        if features[:, moved].max() < ANCHOR_BYTES / 4:
            # small ones alone do not tell what a byte costs: one as large as memory takes it adds that
            anchor = np.zeros((1, len(FEATURES)))
            anchor[0, moved] = ANCHOR_BYTES
            features = np.vstack([features, anchor])
            times_s = np.append(times_s, ANCHOR_BYTES / self.bandwidth_gb_per_s / 1e9)
        parts = self._parts(features) / times_s[:, None]  # so that relative errors count
        scale = np.where(parts.max(0) > 0, parts.max(0), 1.0)
        return nnls(parts / scale, np.ones(len(parts)))[0] / scale

    @cached_property
    def _varies(self) -> np.ndarray:
        return np.ptp(_logarithms(self.points.features), axis=0) > 1e-6

    @cached_property
    def _correction(self) -> Any:
        """What was learnt: a plane, and boosting of what it leaves; the median where there are too few points."""
        from sklearn.ensemble import GradientBoostingRegressor
        from sklearn.linear_model import RidgeCV
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        off = np.log(self.points.times_s) - np.log(self._physics(self.points.features))
        if len(off) < FEWEST or not self._varies.any():
            return float(np.median(off))
        sizes = _logarithms(self.points.features)[:, self._varies]
        plane = make_pipeline(StandardScaler(), RidgeCV(SMOOTHINGS)).fit(sizes, off)
        trees = GradientBoostingRegressor(
            n_estimators=100, max_depth=3, learning_rate=0.1, subsample=0.6, min_samples_leaf=4, max_features=0.5,
            random_state=0,
        ).fit(sizes, off - plane.predict(sizes))  # fmt: skip
        ends = off.min(), off.max()
        return lambda asked: np.clip(plane.predict(asked) + trees.predict(asked), *ends)

    def seconds(self, features: np.ndarray, arithmetic: float = 1.0, bandwidth: float = 1.0) -> np.ndarray:
        """Of operators with these features, (N, FEATURES), were arithmetic and bandwidth so many times as fast."""
        correction = self._correction
        if not isinstance(correction, float):
            correction = correction(_logarithms(features)[:, self._varies])
        return self._physics(features, arithmetic, bandwidth) * np.exp(correction)

    def is_known(self, features: np.ndarray) -> np.ndarray:
        """Whether each lies within what was timed, in arithmetic, bytes, tables and rows, up to a factor of two."""
        own, asked = (_logarithms(each)[:, : len(SIZES)] for each in (self.points.features, features))
        return ((asked >= own.min(0) - 1) & (asked <= own.max(0) + 1)).all(1)

    def _physics(self, features: np.ndarray, arithmetic: float = 1.0, bandwidth: float = 1.0) -> np.ndarray:
        faster = np.array([1.0, arithmetic, 1.0, *[bandwidth] * 3])  # a call and a row looked up wait as before
        return np.maximum(self._parts(features) @ (self._costs / faster), FASTEST_S)

    def _parts(self, features: np.ndarray) -> np.ndarray:
        """(N, 6): what each of the costs is for."""
        flop, moved, table, row, lookups, distinct = features[:, : len(SIZES)].T
        reach = np.maximum(np.where(table > 0, distinct * row, moved), 1.0)
        beyond = [moved * np.maximum(0.0, 1 - cache / reach) for cache in self.caches]
        return np.stack([np.ones_like(flop), flop, lookups, moved, *beyond], axis=1)


def _logarithms(features: np.ndarray) -> np.ndarray:
    """Of what is above zero; the signs of numbers stay."""
    return np.sign(features) * np.log2(1 + np.abs(features))


def geometric_error(misses: Sequence[float]) -> float:
    """The geometric mean of how far off predictions are, from the logarithms of measured ÷ predicted: 0.05 is 5 %."""
    return math.exp(float(np.mean(np.abs(misses)))) - 1 if len(misses) else math.nan

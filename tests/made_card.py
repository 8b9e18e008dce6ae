"""A card of a machine that was made up, whose operators take what a formula says."""

import numpy as np

from labkit.hardware import Calibration
from labkit.perfmodel import ALL, Card, features_of
from labkit.perfmodel.card import Overheads, Points
from labkit.perfmodel.operators import Operator

CACHES = 2.0**21, 2.0**25
LIMITS = Calibration("made up", 2, 100.0, 400.0, 50.0, 1.0, "2026-11-24")


def product(rows: int, inner: int, columns: int) -> Operator:
    tensors = (("float32", (rows, inner), True), ("float32", (inner, columns), True))
    moved = 4.0 * (rows * inner + inner * columns + rows * columns)
    return Operator("aten.mm", "forward", tensors, flop=2.0 * rows * inner * columns, bytes=moved)


def made_s(operator: Operator) -> float:
    return 3e-6 + operator.flop / 100e9 + operator.bytes / 50e9


def made_points(count: int = 120, seed: int = 0) -> Points:
    rng = np.random.default_rng(seed)
    operators = [product(*(int(2**power) for power in rng.uniform(3, 10, 3))) for _ in range(count)]
    features = np.array([features_of(each) for each in operators])
    times = np.array([made_s(each) for each in operators])
    return Points(features, times, np.arange(count))


def made_card(**changes) -> Card:
    told = {
        "device": "made up",
        "tier": "cloud-cpu-2",
        "threads": 2,
        "software": {"torch": "2.13.0", "labkit": "0"},
        "when": "2026-11-24",
        "took_s": 1.0,
        "limits": LIMITS,
        "caches": CACHES,
        "noise": 0.05,
        "kernels": {"aten.mm float32": made_points()},
        "overheads": {ALL: Overheads(10.0, (2.0, 0.0, 0.0)), "dlrm": Overheads(0.0, (4.0, 0.0, 0.0))},
        "misses": {"dlrm": [-0.1, 0.0, 0.1] * 20, "speech": []},
        "shared": {"dlrm": [-0.2, 0.0, 0.2] * 20, "speech": []},
        "kinds": {"aten.mm float32": (0.01, 1.0)},
    }
    return Card(**told | changes)

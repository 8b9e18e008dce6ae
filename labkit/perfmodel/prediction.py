"""How long a step takes on a machine, from its operators and the machine's card."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from labkit.perfmodel.card import ALL, Card
from labkit.perfmodel.kernels import features_of
from labkit.perfmodel.operators import PHASES, Operator

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Prediction:
    """Of one step."""

    step_ms: float
    low_ms: float
    high_ms: float
    """The ends of its interval, which holds nine of ten steps"""
    operators: pd.DataFrame
    """Columns kind, phase, calls, time_ms, is_modelled, is_known (within what was timed); the longest first"""
    overheads_ms: float
    """Of the step, in which no operator runs: T1"""
    views_ms: float
    """Of its operators, those that compute nothing: T5"""

    @property
    def active(self) -> float:
        """The share of the step in which an operator computes."""
        return 1 - (self.overheads_ms + self.views_ms) / self.step_ms

    def share(self, column: str) -> float:
        """The share of the operators' time for which a column of theirs says no."""
        frame = self.operators
        return float(frame.loc[~frame[column], "time_ms"].sum() / frame["time_ms"].sum())


def predict_step(operators: Sequence[Operator], card: Card, job: str = ALL) -> Prediction:
    """Predict one step.

    Args:
        operators: of `labkit.perfmodel.operators.operators_of`.
        card: of the machine.
        job: whose overheads and intervals count; all of the card's together for a script of the reader's.
    """
    import pandas as pd

    if not operators:
        raise ValueError("a step without operators takes no time")
    alike: dict[tuple, list[Operator]] = defaultdict(list)
    for operator in operators:
        alike[operator.kind, operator.phase, operator.is_view].append(operator)
    rows, views_s = [], 0.0
    for (kind, phase, is_view), own in alike.items():
        features = np.array([features_of(each) for each in own])
        model = card.models.get(kind)
        seconds = card_times(own, card) if model is None else model.seconds(features)
        known = np.zeros(len(own), bool) if model is None else model.is_known(features)
        views_s += seconds.sum() if is_view else 0.0
        for chosen, is_known in ((known, True), (~known, False)):
            if chosen.any():
                rows.append((kind, phase, int(chosen.sum()), 1e3 * seconds[chosen].sum(), model is not None, is_known))
    columns = ["kind", "phase", "calls", "time_ms", "is_modelled", "is_known"]
    frame = pd.DataFrame(rows, columns=columns).sort_values("time_ms", ascending=False, ignore_index=True)
    phases = frame.groupby("phase")["time_ms"].sum().reindex(PHASES, fill_value=0.0)
    overheads = card.overheads.get(job, card.overheads[ALL])
    overheads_ms = 1e3 * overheads.seconds(len(operators), {phase: phases[phase] / 1e3 for phase in PHASES})
    step_ms = float(frame["time_ms"].sum() + overheads_ms)
    outside = float(frame.loc[~frame["is_known"], "time_ms"].sum() / frame["time_ms"].sum())
    low, high = card.interval(job, outside)
    return Prediction(step_ms, low * step_ms, high * step_ms, frame, overheads_ms, 1e3 * views_s)


def card_times(operators: Sequence[Operator], card: Card) -> np.ndarray:
    """Of operators without a model: what the machine's best arithmetic and bandwidth allow, and a call."""
    limits = card.limits
    times = [
        limits.launch_us / 1e6 + max(each.flop / limits.fp32_gflops / 1e9, each.bytes / limits.bandwidth_gb_per_s / 1e9)
        for each in operators
    ]
    return np.array(times)

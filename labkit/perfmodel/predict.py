"""Predicts the time of a step on a machine, from its operators and the machine's card."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from labkit import UserError, hardware
from labkit.perfmodel.card import ALL, Card, features_of
from labkit.perfmodel.operators import PHASES, Operator

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Prediction:
    """The predicted time of one step."""

    step_ms: float
    low_ms: float
    high_ms: float
    """Ends of the interval, which holds the usual step of nine out of ten trainings"""
    operators: pd.DataFrame
    """Columns kind, phase, calls, time_ms, seen_ms (when captured), is_modelled, is_known (within the timed range);
    longest first"""
    overheads_ms: float
    """Time in which no operator runs: T1"""
    views_ms: float
    """Time of operators that compute nothing: T5"""
    critical_ms: float
    """Longest chain of operators that need each other's results: the step if everything else ran in parallel to it"""

    @property
    def active(self) -> float:
        """Share of the step in which an operator computes."""
        return 1 - (self.overheads_ms + self.views_ms) / self.step_ms

    def share(self, column: str) -> float:
        """Share of the operators' time with a False in this column.

        The larger of the shares of predicted and of captured time, because operators without a model are predicted too
        short.
        """
        frame = self.operators
        times = [frame[name] for name in ("time_ms", "seen_ms") if frame[name].sum()]
        return max(float(own[~frame[column]].sum() / own.sum()) for own in times)

    def to_dict(self) -> dict[str, Any]:
        """The answer for programs."""
        names = ("step_ms", "low_ms", "high_ms", "overheads_ms", "views_ms", "critical_ms")
        return {name: getattr(self, name) for name in names} | {
            "provenance": "predicted",
            "active_share": self.active,
            "without_model": self.share("is_modelled"),
            "outside": self.share("is_known"),
            "operators": self.operators.to_dict("records"),
        }


@dataclass(frozen=True)
class Change:
    """The difference between a machine and that of a card."""

    arithmetic: float = 1.0
    """Factor on floating-point operations per second"""
    bandwidth: float = 1.0
    """Factor on bytes per second, of caches and memory alike"""
    overheads: float = 1.0
    """Share that remains of the time in which nothing is computed"""
    doubt: float = 1.0
    """Extra factor on each end of the interval"""


NO_CHANGE = Change()
DATASHEET_DOUBT = 2.0
"""Factor on each end of the interval for a machine that nothing was measured on"""
WORTH_SAYING = 0.05
"""Share of the time in unknown operators above which a prediction comes with a note"""


def tier_change(card: Card, tier: hardware.Tier) -> Change:
    """The change to a tier of the catalogue: data sheet over measured speeds; CPUs without speeds count by cores.

    Raises:
        UserError: it is a GPU, or the catalogue has neither its speeds nor its cores.
    """
    if tier.kind == "gpu":
        raise UserError(
            f"tier {tier.name} is a GPU, and a CPU's card has no GPU kernels or launches: name a CPU of `labkit "
            "tiers`.",
            field="tier",
        )
    speeds = tier.fp32_tflops, tier.bandwidth_gb_s
    if None not in speeds:
        arithmetic, bandwidth = 1e3 * speeds[0] / card.limits.fp32_gflops, speeds[1] / card.limits.bandwidth_gb_per_s
    elif tier.kind == "cpu" and tier.cores:
        arithmetic = bandwidth = tier.cores / card.threads
    else:
        raise UserError(f"the catalogue has no speeds for tier {tier.name}: name another tier.", field="tier")
    return Change(arithmetic, bandwidth, doubt=DATASHEET_DOUBT)


def predict_step(operators: Sequence[Operator], card: Card, job: str = ALL, change: Change = NO_CHANGE) -> Prediction:
    """Predict one step.

    Args:
        operators: operators of the step, of `labkit.perfmodel.operators_of`.
        card: card of the machine.
        job: job whose overheads and intervals apply; `ALL` for other scripts.
        change: difference between the machine in question and the card's.
    """
    import pandas as pd

    if not operators:
        raise ValueError("a step without operators cannot be predicted: it must call torch")
    alike: dict[tuple, list[int]] = defaultdict(list)
    for number, operator in enumerate(operators):
        alike[operator.kind, operator.phase, operator.is_view].append(number)
    bias = card.bias(job)
    rows, times_s, views_s = [], np.zeros(len(operators)), 0.0
    for (kind, phase, is_view), numbers in alike.items():
        own = [operators[number] for number in numbers]
        features = np.array([features_of(each) for each in own])
        model = card.models.get(kind)
        faster = (change.arithmetic, change.bandwidth)
        seconds = best_times_s(own, card.limits, *faster) if model is None else model.seconds(features, *faster)
        seconds *= bias * (change.overheads if is_view else 1.0)
        times_s[numbers] = seconds
        known = np.zeros(len(own), bool) if model is None else model.is_known(features)
        views_s += seconds.sum() if is_view else 0.0
        for chosen, is_known in ((known, True), (~known, False)):
            if chosen.any():
                seen_s = sum(each.seen_s for each, is_one in zip(own, chosen, strict=True) if is_one)
                times_ms = 1e3 * seconds[chosen].sum(), 1e3 * seen_s
                rows.append((kind, phase, int(chosen.sum()), *times_ms, model is not None, is_known))
    columns = ["kind", "phase", "calls", "time_ms", "seen_ms", "is_modelled", "is_known"]
    frame = pd.DataFrame(rows, columns=columns).sort_values("time_ms", ascending=False, ignore_index=True)
    overheads = card.overheads.get(job, card.overheads[ALL])
    overheads_ms = 1e3 * bias * change.overheads * overheads.seconds(calls_of(operators))
    step_ms = float(frame["time_ms"].sum() + overheads_ms)
    outside = float(frame.loc[~frame["is_known"], "time_ms"].sum() / frame["time_ms"].sum())
    low, high = card.interval(job, outside)
    low, high = low / change.doubt, high * change.doubt
    critical_ms = 1e3 * critical_path_s(operators, times_s)
    return Prediction(step_ms, low * step_ms, high * step_ms, frame, overheads_ms, 1e3 * views_s, critical_ms)


def calls_of(operators: Sequence[Operator]) -> dict[str, int]:
    """Number of operators per phase."""
    phases = [operator.phase for operator in operators]
    return {phase: phases.count(phase) for phase in PHASES}


def predict_steps(
    steps: Sequence[Sequence[Operator]], card: Card, job: str = ALL, change: Change = NO_CHANGE
) -> Prediction:
    """Predict the mean of several steps; other arguments as for `predict_step`."""
    import pandas as pd

    found = [predict_step(step, card, job, change) for step in steps]
    numbers = {
        each.name: float(np.mean([getattr(one, each.name) for one in found]))
        for each in dataclasses.fields(Prediction)
        if each.name != "operators"
    }
    keys = ["kind", "phase", "is_modelled", "is_known"]
    numbers_of = ["calls", "time_ms", "seen_ms"]
    frame = pd.concat([one.operators for one in found]).groupby(keys, as_index=False)[numbers_of].sum()
    frame[numbers_of] /= len(found)
    return Prediction(operators=frame.sort_values("time_ms", ascending=False, ignore_index=True), **numbers)


def critical_path_s(operators: Sequence[Operator], times_s: Iterable[float]) -> float:
    """Length of the longest chain of operators, each of which needs the result of the one before."""
    ends: list[float] = []
    for operator, seconds in zip(operators, times_s, strict=True):
        ends.append(max((ends[number] for number in operator.after), default=0.0) + seconds)
    return max(ends)


def best_times_s(
    operators: Sequence[Operator], limits: hardware.Calibration, arithmetic: float = 1.0, bandwidth: float = 1.0
) -> np.ndarray:
    """Times of operators without a model: a call, and the machine's best arithmetic or bandwidth."""
    flop_per_s, bytes_per_s = 1e9 * limits.fp32_gflops * arithmetic, 1e9 * limits.bandwidth_gb_per_s * bandwidth
    times = [limits.launch_us / 1e6 + max(each.flop / flop_per_s, each.bytes / bytes_per_s) for each in operators]
    return np.array(times)


def uncertainties(prediction: Prediction) -> list[str]:
    """Notes on the share of a prediction in operators without a model, or beyond the timed range."""
    without, outside = prediction.share("is_modelled"), prediction.share("is_known")
    frame, notes = prediction.operators, []
    if without > WORTH_SAYING:
        unknown = frame[~frame["is_modelled"]].groupby("kind")[["seen_ms", "time_ms"]].sum().max(axis=1)
        names = ", ".join(unknown.sort_values(ascending=False).index[:3])
        notes.append(
            f"{without:.0%} of the step's time is in operators that the card has no model of ({names}). Their time is "
            "estimated from the machine's best speed, and so too short."
        )
    if outside - without > WORTH_SAYING:
        notes.append(
            f"{outside - without:.0%} of the step's time is in operators larger or smaller than any on the card, which "
            "makes it less certain."
        )
    return notes


def card_notes(card: Card, budget: hardware.Budget | None) -> list[str]:
    """Notes on a card that is poor, of another torch, or of another number of threads than the budget."""
    notes = []
    if card.is_poor:
        notes.append(
            "The card is poor: its predictions of held-out steps were off by up to "
            f"{max(map(card.error, card.misses)):.0%}. Calibrate again while nothing else runs, and for longer."
        )
    versions = [each.partition("+")[0] for each in (card.software["torch"], torch.__version__)]
    if versions[0] != versions[1]:
        notes.append(
            f"The card is of torch {versions[0]}, and this step's operators are of {versions[1]}: calibrate that "
            "machine again to be sure."
        )
    if budget and budget.cores not in (None, card.threads) and card.device == hardware.read_cpu().model:
        notes.append(
            f"The card is of {card.threads} threads, and this budget has {budget.cores} cores: make a card for it with "
            f"`labkit calibrate --budget {budget.name}`."
        )
    return notes


def tier_notes(tier: hardware.Tier, memory_bytes: int) -> list[str]:
    """Notes on a prediction for a tier, by a process that held this much memory."""
    notes = [
        f"Tier {tier.name} is predicted from its data sheet, relative to the card's machine. It was not measured, so "
        "each end of the interval is another factor of two away."
    ]
    if tier.memory_gb and memory_bytes > 1e9 * tier.memory_gb:
        notes.append(f"It does not fit: tier {tier.name} has {tier.memory_gb:g} GB of memory.")
    return notes

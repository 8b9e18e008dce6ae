"""Predicts the time of a step on a machine, from its operators and the machine's card; and what a target then takes.

Time, energy and cost to a target are a predicted step times the number of steps that finished runs needed.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from labkit import UserError, errors, hardware, jobs, runs, tracking, tta
from labkit.perfmodel.card import ALL, Card, KernelModel, features_of
from labkit.perfmodel.operators import PHASES, Operator

if TYPE_CHECKING:
    import pandas as pd

SAME = ("preset", "optimiser", "compress", "compress_to")
"""Settings in which runs must agree to show how many samples a target needs; the learning rate depends on the batch"""


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
        return vars(self) | {
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
SUMMED = ["calls", "time_ms", "seen_ms"]
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
    tflops, gb_per_s = tier.fp32_tflops, tier.bandwidth_gb_s
    if tflops is not None and gb_per_s is not None:
        arithmetic, bandwidth = 1e3 * tflops / card.limits.fp32_gflops, gb_per_s / card.limits.bandwidth_gb_per_s
    elif tier.kind == "cpu" and tier.cores:
        arithmetic = bandwidth = tier.cores / card.threads
    else:
        raise UserError(f"the catalogue has no speeds for tier {tier.name}: name another tier.", field="tier")
    return Change(arithmetic, bandwidth, doubt=DATASHEET_DOUBT)


def predict_step(operators: Sequence[Operator], card: Card, job: str = ALL, change: Change = NO_CHANGE) -> Prediction:
    """Predict one step from its operators (`labkit.perfmodel.operators_of`).

    The overheads and intervals of `job` apply; it is `ALL` for other scripts. `change` is the difference between the
    machine in question and the card's.
    """
    import pandas as pd

    if not operators:
        raise ValueError("a step without operators cannot be predicted: it must call torch")
    times_s, is_known = times_of(operators, card.models, card.limits, change.arithmetic, change.bandwidth)
    is_view, bias = np.array([each.is_view for each in operators]), card.bias(job)
    times_s *= np.where(is_view, bias * change.overheads, bias)
    called = pd.DataFrame(
        {
            "kind": [each.kind for each in operators],
            "phase": [each.phase for each in operators],
            "calls": 1,
            "time_ms": 1e3 * times_s,
            "seen_ms": [1e3 * each.seen_s for each in operators],
            "is_modelled": [each.kind in card.models for each in operators],
            "is_known": is_known,
        }
    )
    frame = _sums(called)
    overheads = card.overheads.get(job, card.overheads[ALL])
    overheads_ms = 1e3 * bias * change.overheads * overheads.seconds(calls_of(operators))
    step_ms = float(frame["time_ms"].sum() + overheads_ms)
    outside = float(frame.loc[~frame["is_known"], "time_ms"].sum() / frame["time_ms"].sum())
    low, high = card.interval(job, outside)
    low, high = low / change.doubt, high * change.doubt
    views_ms, critical_ms = 1e3 * times_s[is_view].sum(), 1e3 * critical_path_s(operators, times_s)
    return Prediction(step_ms, low * step_ms, high * step_ms, frame, overheads_ms, views_ms, critical_ms)


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
    numbers = pd.DataFrame(map(vars, found)).drop(columns="operators").mean().to_dict()
    frame = _sums(pd.concat([one.operators for one in found]))
    frame[SUMMED] /= len(found)
    return Prediction(operators=frame, **numbers)


def _sums(operators: pd.DataFrame) -> pd.DataFrame:
    """One row per kind and phase of operators, with and without a model, within the timed range and beyond it."""
    sums = operators.groupby(["kind", "phase", "is_modelled", "is_known"], as_index=False)[SUMMED].sum()
    columns = ["kind", "phase", *SUMMED, "is_modelled", "is_known"]
    return sums[columns].sort_values("time_ms", ascending=False, ignore_index=True)


def critical_path_s(operators: Sequence[Operator], times_s: Iterable[float]) -> float:
    """Length of the longest chain of operators, each of which needs the result of the one before."""
    ends: list[float] = []
    for operator, seconds in zip(operators, times_s, strict=True):
        ends.append(max((ends[number] for number in operator.after), default=0.0) + seconds)
    return max(ends)


def times_of(
    operators: Sequence[Operator],
    models: Mapping[str, KernelModel],
    limits: hardware.Calibration,
    arithmetic: float = 1.0,
    bandwidth: float = 1.0,
) -> tuple[np.ndarray, np.ndarray]:
    """Times of operators on a machine faster by these factors, and whether each is within the timed range: (N,) both.

    Operators without a model take a call, and the machine's best arithmetic or bandwidth.
    """
    flop_per_s, bytes_per_s = 1e9 * limits.fp32_gflops * arithmetic, 1e9 * limits.bandwidth_gb_per_s * bandwidth
    best = [limits.launch_us / 1e6 + max(each.flop / flop_per_s, each.bytes / bytes_per_s) for each in operators]
    times_s, is_known = np.array(best), np.zeros(len(operators), bool)
    numbers: dict[str, list[int]] = defaultdict(list)
    for number, operator in enumerate(operators):
        numbers[operator.kind].append(number)
    for kind in numbers.keys() & models.keys():
        features = np.array([features_of(operators[number]) for number in numbers[kind]])
        times_s[numbers[kind]] = models[kind].seconds(features, arithmetic, bandwidth)
        is_known[numbers[kind]] = models[kind].is_known(features)
    return times_s, is_known


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


@dataclass(frozen=True)
class Need:
    """Training samples until a target."""

    samples: float
    low: float
    high: float
    how: str
    """Runs that it was measured in, or interpolated between"""


@dataclass(frozen=True)
class ToTarget:
    """Cost of reaching a target by training alone, without evaluation or loading of data."""

    seconds: float
    low_s: float
    high_s: float
    need: Need
    energy_j: float | None
    cost_usd: float | None
    how: str
    """Source of joules and dollars, or the reason why they are missing"""


def need_of(job: jobs.TrainingJob, runs_dir: Path) -> Need:
    """Samples until a job's target, as runs in a folder with the same settings and data needed them."""
    settings = {name: getattr(job, name) for name in SAME if hasattr(job, name)}
    records = [
        (folder, record)
        for folder, record in runs.readable_runs(runs.run_folders(runs_dir))
        if record.config.get("job", record.name) == job.name
        and record.config.get("data", {}).get("name") == Path(job.data).name
        and settings.items() <= record.config.get("train", {}).items()
    ]
    return samples_to_target(tta.table_of(records), job.target, job.batch_size)


def samples_to_target(table: pd.DataFrame, target: tracking.Target, batch_size: int) -> Need:
    """Samples that runs needed at a batch size, or interpolated between the nearest two (linear in logarithms).

    `table` is of `labkit.tta.run_table`, of runs that differ only in batch size, learning rate, seed and machine.

    Raises:
        UserError: no run has reached it, or none at this batch size nor at one above and one below.
    """
    name = tracking.evaluated_name(target.metric.name)
    curves = tta.curves(table["folder"], metric=name, runs=table) if len(table) else None
    if curves is None or curves.empty:
        raise UserError(
            f"no run here has measured {target.metric.name} with these settings, so the samples to {target} are "
            "unknown: train a run to it first.",
            field="target",
        )
    needs = tta.by_batch_size(curves, table, errors.certain(target.value))
    needs = needs[np.isfinite(needs["need"])].sort_values("time_s").drop_duplicates("batch_size")
    if needs.empty:
        best = curves["value"].max() if target.metric.higher_is_better else curves["value"].min()
        raise UserError(
            f"{target} was never reached by {len(table)} runs with these settings; their best is {best:.4g}: give "
            "that, or train for longer.",
            field="target",
        )
    needs = needs.sort_values("batch_size")
    sizes, found = needs["batch_size"].to_numpy(float), needs[tta.NEED].to_numpy(float, copy=True)
    found[:, 2] = np.where(np.isfinite(found[:, 2]), found[:, 2], 2 * found[:, 0])
    above = int(np.searchsorted(sizes, batch_size))
    if batch_size in sizes:
        row = needs.iloc[above]
        by = f"{row['reached']:.0f} of {row['runs']:.0f} runs"
        return Need(*found[above].tolist(), f"measured, by {by} at batch {batch_size:,}")
    if not 0 < above < len(sizes):
        measured = ", ".join(f"{size:,.0f}" for size in sizes)
        raise UserError(
            f"{target} was measured neither at batch {batch_size:,} nor on both sides of it, only at {measured}: train "
            "a run at that batch size.",
            field="target",
        )
    samples, low, high = (math.exp(np.interp(math.log(batch_size), np.log(sizes), ends)) for ends in np.log(found.T))
    between = f"{sizes[above - 1]:,.0f} and {sizes[above]:,.0f}"
    return Need(samples, low, high, f"not measured at batch {batch_size:,}: between those of {between}")


def to_target(step: Prediction, batch_size: int, need: Need, tier: str | None) -> ToTarget:
    """Combine a predicted step with the samples that a target needs, on a machine of a tier."""
    ends = (need.samples, step.step_ms), (need.low, step.low_ms), (need.high, step.high_ms)
    seconds, low_s, high_s = (samples / batch_size * step_ms / 1e3 for samples, step_ms in ends)
    power_w = hardware.get_tier(tier).power_w if tier else None
    cost = tta.cost_usd(seconds, tier)
    power = f"{power_w:g} W from tier {tier}'s data sheet" if power_w else "the power of its tier is unknown"
    energy_j = None if power_w is None else power_w * seconds
    return ToTarget(seconds, low_s, high_s, need, energy_j, cost.value_usd, f"{power}; {cost.note}")

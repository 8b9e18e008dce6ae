"""Time, energy and cost to a target: a predicted step times the number of steps that finished runs needed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from labkit import UserError, hardware, jobs, tracking, tta
from labkit.perfmodel.predict import Prediction
from labkit.runs import readable_runs, run_folders
from labkit.tta import cost_usd

if TYPE_CHECKING:
    import pandas as pd


SAME = ("preset", "optimiser", "compress", "compress_to")
"""Settings in which runs must agree to show how many samples a target needs; the learning rate depends on the batch"""


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
    return samples_to_target(alike(runs_dir, job.name, settings, Path(job.data).name), job.target, job.batch_size)


def samples_to_target(runs: pd.DataFrame, target: tracking.Target, batch_size: int) -> Need:
    """Samples that runs needed at a batch size, or interpolated between the nearest two (linear in logarithms).

    Args:
        runs: table of `labkit.tta.run_table`, of runs that differ only in batch size, learning rate, seed and machine.
        target: the target.
        batch_size: samples per step.

    Raises:
        UserError: no run has reached it, or none at this batch size nor at one above and one below.
    """
    name = tracking.evaluated_name(target.metric.name)
    curves = tta.curves(runs["folder"], metric=name, runs=runs) if len(runs) else None
    if curves is None or curves.empty:
        raise UserError(
            f"no run here has measured {target.metric.name} with these settings, so the samples to {target} are "
            "unknown: train a run to it first.",
            field="target",
        )
    table = tta.by_batch_size(curves, runs, target.value)
    table = table[np.isfinite(table["need"])].sort_values("time_s").drop_duplicates("batch_size")
    if table.empty:
        best = curves["value"].max() if target.metric.higher_is_better else curves["value"].min()
        raise UserError(
            f"{target} was never reached by {len(runs)} runs with these settings; their best is {best:.4g}: give that, "
            "or train for longer.",
            field="target",
        )
    own = table[table["batch_size"] == batch_size]
    if len(own):
        row = own.iloc[0]
        by = f"{row['reached']:.0f} of {row['runs']:.0f} runs"
        return Need(*_finite(row), f"measured, by {by} at batch {batch_size:,}")
    table = table.sort_values("batch_size")
    below, above = table[table["batch_size"] < batch_size], table[table["batch_size"] > batch_size]
    if below.empty or above.empty:
        sizes = ", ".join(f"{size:,.0f}" for size in table["batch_size"])
        raise UserError(
            f"{target} was measured neither at batch {batch_size:,} nor on both sides of it, only at {sizes}: train a "
            "run at that batch size.",
            field="target",
        )
    near = below.iloc[-1], above.iloc[0]
    sizes = [math.log(row["batch_size"]) for row in near]
    ends = np.log([_finite(row) for row in near]).T
    samples, low, high = (math.exp(np.interp(math.log(batch_size), sizes, values)) for values in ends)
    between = " and ".join(f"{row['batch_size']:,.0f}" for row in near)
    return Need(samples, low, high, f"not measured at batch {batch_size:,}: between those of {between}")


def _finite(row: pd.Series) -> tuple[float, float, float]:
    samples, low, high = (float(row[name]) for name in tta.NEED)
    return samples, low, high if math.isfinite(high) else 2 * samples


def to_target(step: Prediction, batch_size: int, need: Need, tier: str | None) -> ToTarget:
    """Combine a predicted step with the samples that a target needs, on a machine of a tier."""
    seconds, low_s, high_s = (
        samples / batch_size * step_ms / 1e3
        for samples, step_ms in (
            (need.samples, step.step_ms), (need.low, step.low_ms), (need.high, step.high_ms)
        )
    )  # fmt: skip
    power_w = hardware.get_tier(tier).power_w if tier else None
    cost = cost_usd(seconds, tier)
    power = f"{power_w:g} W from tier {tier}'s data sheet" if power_w else "the power of its tier is unknown"
    energy_j = None if power_w is None else power_w * seconds
    return ToTarget(seconds, low_s, high_s, need, energy_j, cost.value_usd, f"{power}; {cost.note}")


def alike(runs_dir: Path, job: str, settings: Mapping[str, object], data: str | None = None) -> pd.DataFrame:
    """Runs of a job in a folder with these training settings and this data."""
    records = [
        (folder, record)
        for folder, record in readable_runs(run_folders(runs_dir))
        if record.config.get("job", record.name) == job
        and data in (None, record.config.get("data", {}).get("name"))
        and settings.items() <= record.config.get("train", {}).items()
    ]
    return tta.table_of(records)

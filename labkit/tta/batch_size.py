"""What a batch size costs: how much training a target takes at it, how fast it goes, and the time, their quotient."""

from __future__ import annotations

import numpy as np
import pandas as pd

from labkit.errors import UserError
from labkit.tta.kaplan_meier import survival
from labkit.tta.thresholds import SERIES

NEED = ["need", "need_low", "need_high"]
BATCH_COLUMNS = [
    *SERIES, "device", "batch_size", "unit", "target", "runs", "reached", "failed", "censored", *NEED, "rate",
    "time_s", "time_low_s", "time_high_s",
]  # fmt: skip


def by_batch_size(curves: pd.DataFrame, runs: pd.DataFrame, target: float, *, unit: str = "samples") -> pd.DataFrame:
    """How much training the target takes at each batch size, at what rate, and how long that is.

    Args:
        curves: one row an evaluation of one metric (`labkit.tta.curves`, or a recording's).
        runs: one row a run, whose `settings` name its batch size.
        target: value of the metric.
        unit: "samples" or "epochs": a column of `curves`, and what a rate is of.

    Returns:
        BATCH_COLUMNS, one row a device and batch size: of series that share both (they differ in learning rate or power
        limit) that whose median is least, since the others do not say what this batch size costs. need is the median of
        the unit until the target, with the ends of its interval or range (`survival`; inf where half of the runs or
        more do not arrive); rate is the median over runs of the unit a second of training, NaN where no time is known;
        time_s is need over rate, without evaluation.

    Raises:
        UserError: the runs do not tell this unit.
    """
    if unit not in ("samples", "epochs") or unit not in curves or curves[unit].isna().all():
        told = [each for each in ("samples", "epochs") if each in curves and curves[each].notna().any()]
        raise UserError(f"these runs tell no {unit}: give unit={' or '.join(map(repr, told))}.")
    runs = runs.assign(batch_size=[own.get("batch_size", np.nan) for own in runs["settings"]])
    places = pd.DataFrame(list(runs["settings"]), runs.index).reindex(columns=["budget", "host", "device"])
    varying = [name for name in places if name == "budget" or places[name].nunique() > 1]
    runs["device"] = places[varying].astype(str).agg(" · ".join, axis=1)
    ends = curves.sort_values("train_s", kind="stable").groupby("run")[["train_s", unit]].last()
    runs["rate"] = runs["run"].map(ends[unit] / ends["train_s"])
    found = survival(curves, runs, target, x=unit)
    found = found.rename(columns=dict(zip(("median", "low", "high"), NEED, strict=True)))
    of_series = runs.groupby(SERIES, sort=False, dropna=False)
    settings = of_series.agg(device=("device", "first"), batch_size=("batch_size", "first"), rate=("rate", "median"))
    table = found.merge(settings.reset_index(), on=SERIES).assign(unit=unit)
    for need, time in zip(NEED, BATCH_COLUMNS[-3:], strict=True):
        table[time] = table[need] / table["rate"]
    order = table["time_s"].fillna(table["need"])
    same = ["job", "device", "provenance", "batch_size"]
    table = table.loc[order.groupby([table[name] for name in same], dropna=False).idxmin()]
    return table.sort_values(["job", "device", "batch_size"], ignore_index=True)[BATCH_COLUMNS]

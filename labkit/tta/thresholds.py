"""What each run is for a target: it reached it at an evaluation, failed, or was cut off."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from labkit.errors import UserError
from labkit.runs import SERIES
from labkit.tracking import METRICS, crossing, metric_named
from labkit.tta.cost import with_cost

CLOCKS = ("wall_s", "train_s")
"""Seconds since training started: all of them, as MLPerf counts, or without evaluation and checkpoints."""
ALWAYS_KNOWN = ("wall_s", "train_s", "samples")
"""Of a run that was measured; of the other axes it may have none: no price, or no energy."""
CROSSING_COLUMNS = [
    *SERIES, "run", "seed", "outcome", "reached", "sustained", "evaluation", "time_to_target_s", "samples_to_target",
    "sustained_time_s", "value", "last_time_s", "spent_s",
]  # fmt: skip


def higher_is_better(metric: str, runs: pd.DataFrame) -> bool:
    """Whether a larger value is the better one; of a metric that labkit does not know, `runs` say so, else it falls."""
    told = runs.loc[runs["metric"] == metric, "higher_is_better"].dropna()
    return metric_named(metric, None if told.empty else bool(told.iloc[0])).higher_is_better


@dataclass(frozen=True)
class Attempts:
    """R runs and L targets, on one axis."""

    runs: pd.DataFrame
    """R rows of `run_table`"""
    evaluation: np.ndarray
    """(L, R) which of the run's evaluations reached the target; -1 where none did"""
    time: np.ndarray
    """(L, R) its place on the axis; inf where the run failed, its last evaluation where it was cut off"""
    spent: np.ndarray
    """(L, R) the same, but where the run failed, how far it went until its end"""

    @property
    def reached(self) -> np.ndarray:
        return self.evaluation >= 0

    @property
    def failed(self) -> np.ndarray:
        return np.isinf(self.time)

    def of(self, runs: np.ndarray) -> Attempts:
        """Those of some of the runs, by their places."""
        return Attempts(self.runs.iloc[runs], *(each[:, runs] for each in (self.evaluation, self.time, self.spent)))


def attempts(
    curves: pd.DataFrame, runs: pd.DataFrame, targets: np.ndarray, x: str = "wall_s", *, confirmed: bool = False
) -> Attempts:
    """What these runs are for each target.

    Args:
        curves: one row an evaluation (`labkit.tta.curves`) of one metric.
        runs: one row a run (`labkit.tta.run_table`); left out are those that are unknown on the axis x, and those that
            watched another metric and never evaluated this one.
        targets: (L,) values of the metric.
        x: a column of `curves` that grows with time.
        confirmed: whether only as many evaluations in a row as confirm the run's target count.
    """
    metric = str((curves if len(curves) else runs)["metric"].iloc[0]) if len(runs) else ""
    runs = runs[runs["run"].isin(curves["run"]) | runs["metric"].isna() | (runs["metric"] == metric)]
    known = METRICS.get(metric)
    if known and len(curves) and (beyond := np.max(targets)) > max(known.high, curves["value"].max()):
        raise UserError(f"the target {beyond:g} is beyond any {known.label}, which is a share: write {beyond / 100:g}.")
    has_axis = curves[x].notna().groupby(curves["run"]).any()
    runs = runs[~runs["run"].isin(has_axis.index[~has_axis])]
    ends = (with_cost(runs.fillna({"wall_s": 0.0})) if x == "cost_usd" else runs)[x].to_numpy(float)
    if x not in ALWAYS_KNOWN:
        runs, ends = runs[~np.isnan(ends)], ends[~np.isnan(ends)]
    number = pd.Index(runs["run"]).get_indexer(curves["run"])
    order = np.lexsort((curves["wall_s"].to_numpy(float), number))[np.count_nonzero(number < 0) :]
    counts = np.bincount(number[order], minlength=len(runs))
    evaluation = crossing(
        curves["value"].to_numpy(float)[order],
        counts,
        targets,
        runs["confirm"].to_numpy() if confirmed else 1,
        higher_is_better=higher_is_better(metric, runs),
    )
    places, begins = np.append(curves[x].to_numpy(float)[order], 0.0), np.cumsum(counts) - counts
    last = np.where(counts > 0, places[begins + counts - 1], 0.0)
    failed = (runs["unreached"] == "failed").to_numpy()
    crossed, reached = places[begins + np.maximum(evaluation, 0)], evaluation >= 0
    time = np.where(reached, crossed, np.where(failed, np.inf, last))
    spent = np.where(reached, crossed, np.where(failed, np.fmax(ends, last), last))
    return Attempts(runs, evaluation, time, spent)


def crossings(curves: pd.DataFrame, runs: pd.DataFrame, target: float, *, x: str = "wall_s") -> pd.DataFrame:
    """When each run reached `target`, or what became of it.

    A crossing is the first *evaluation* at or past the target; nothing is interpolated. The sustained crossing begins
    the first streak of evaluations at or past it that confirms the run's target (`labkit.tracking.crossings`).

    Args:
        curves: one row an evaluation (`labkit.tta.curves`) of one metric.
        runs: one row a run (`labkit.tta.run_table`).
        target: value of that metric.
        x: "wall_s", "train_s", or another column that grows, in whose unit the times below then are.

    Returns:
        CROSSING_COLUMNS, one row a run that has the axis. outcome is "reached", "failed" (it never would have) or
        "censored" (it was cut off). evaluation is the crossing's place among the run's own, -1 if there is none;
        time_to_target_s, samples_to_target and value are of it, NaN if there is none; last_time_s is the last
        evaluation, 0 without one; spent_s is `Attempts.spent`.
    """
    found = attempts(curves, runs, [target], x)
    held = attempts(curves, runs, [target], x, confirmed=True)
    table = found.runs[[*SERIES, "run", "seed"]].reset_index(drop=True)
    reached, failed, sustained = found.reached[0], found.failed[0], held.reached[0]
    curves = curves.sort_values("wall_s", kind="stable")
    curves = curves.assign(evaluation=curves.groupby("run").cumcount(), samples_to_target=curves["samples"])
    return table.assign(
        outcome=np.select([reached, failed], ["reached", "failed"], "censored"),
        reached=reached,
        sustained=sustained,
        time_to_target_s=np.where(reached, found.time[0], np.nan),
        sustained_time_s=np.where(sustained, held.time[0], np.nan),
        last_time_s=table["run"].map(curves.groupby("run")[x].last()).fillna(0.0),
        spent_s=found.spent[0],
        evaluation=found.evaluation[0],
    ).merge(curves[["run", "evaluation", "samples_to_target", "value"]], "left")[CROSSING_COLUMNS]

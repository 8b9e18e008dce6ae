"""The outcome of each run for a target: it reached it at an evaluation, failed, or was cut off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from labkit import UserError, tracking
from labkit.runs import SERIES
from labkit.tta.costs import with_cost

CLOCKS = ("wall_s", "train_s")
"""Seconds since training started: all of them, as MLPerf counts, or without evaluation and checkpoints"""
ALWAYS_KNOWN = ("wall_s", "train_s", "samples")
"""Axes that every measured run has; others may be missing, for want of a price or of energy"""
CROSSING_COLUMNS = [
    *SERIES, "run", "seed", "outcome", "reached", "sustained", "evaluation", "time_to_target_s", "samples_to_target",
    "sustained_time_s", "value", "last_time_s", "spent_s",
]  # fmt: skip


def higher_is_better(metric: str, runs: pd.DataFrame) -> bool:
    """Whether a larger value is better; `runs` decide for a metric that labkit does not know (default: smaller)."""
    given = runs.loc[runs["metric"] == metric, "higher_is_better"].dropna()
    return tracking.metric_named(metric, None if given.empty else bool(given.iloc[0])).higher_is_better


@dataclass(frozen=True)
class Outcomes:
    """Outcomes of R runs for L targets, on one axis."""

    runs: pd.DataFrame
    """R rows of `run_table`"""
    evaluation: np.ndarray
    """(L, R) which of the run's evaluations reached the target; -1 where none did"""
    time: np.ndarray
    """(L, R) its place on the axis; inf where the run failed, its last evaluation where it was cut off"""
    spent: np.ndarray
    """(L, R) the same, but the run's end where it failed"""

    @property
    def reached(self) -> np.ndarray:
        return self.evaluation >= 0

    @property
    def failed(self) -> np.ndarray:
        return np.isinf(self.time)

    def of(self, runs: np.ndarray) -> Outcomes:
        """The outcomes of some of the runs, given their places or a mask."""
        return Outcomes(self.runs.iloc[runs], *(each[:, runs] for each in (self.evaluation, self.time, self.spent)))


@dataclass(frozen=True)
class Attempts:
    """At which evaluation each of R runs reached each of L targets of one metric: found once, read on any axis."""

    curves: pd.DataFrame
    """Their evaluations, run after run in the order of `runs`, by wall time"""
    runs: pd.DataFrame
    """R rows of `run_table`"""
    metric: str
    targets: np.ndarray
    """(L,)"""
    evaluation: np.ndarray
    """(L, R) which of the run's evaluations reached the target first; -1 where none did"""
    confirmed: np.ndarray
    """(L, R) the first of as many evaluations in a row as confirm the run's target; -1 where there are none"""
    easier: dict[tuple[str, ...], tuple[Attempts, np.ndarray]] = field(default_factory=dict, repr=False)
    """Attempts at easier targets that `labkit.tta.estimators` has looked at, by the names of the runs"""

    @property
    def is_rising(self) -> bool:
        """Whether a higher value of the metric is better."""
        return higher_is_better(self.metric, self.runs)

    def at(self, places: Sequence[int] | np.ndarray) -> Attempts:
        """The same for some of the targets, given their places."""
        some = (each[places] for each in (self.targets, self.evaluation, self.confirmed))
        return replace(self, **dict(zip(("targets", "evaluation", "confirmed"), some, strict=True)))

    def on(self, x: str, *, confirmed: bool = False) -> Outcomes:
        """When each run reached each target on the axis `x`, a column of the curves that grows with time.

        Runs that are unknown on this axis are left out.
        """
        runs, curves = self.runs, self.curves
        evaluation = self.confirmed if confirmed else self.evaluation
        ends = (with_cost(runs.fillna({"wall_s": 0.0})) if x == "cost_usd" else runs)[x].to_numpy(float)
        counts = _evaluations_of(runs, curves)
        begins = np.cumsum(counts) - counts
        places = np.append(curves[x].to_numpy(float), 0.0)  # the last is for runs without an evaluation
        last = np.where(counts > 0, places[begins + counts - 1], 0.0)
        failed = (runs["unreached"] == "failed").to_numpy()
        crossed, reached = places[begins + np.maximum(evaluation, 0)], evaluation >= 0
        time = np.where(reached, crossed, np.where(failed, np.inf, last))
        spent = np.where(reached, crossed, np.where(failed, np.fmax(ends, last), last))
        has_axis = curves[x].notna().groupby(curves["run"]).any()
        known = ~runs["run"].isin(has_axis.index[~has_axis]).to_numpy()
        if x not in ALWAYS_KNOWN:
            known &= ~np.isnan(ends)
        return Outcomes(runs, evaluation, time, spent).of(known)

    def crossings(self, x: str = "wall_s") -> pd.DataFrame:
        """`crossings` of the first of these targets."""
        found, held, curves = self.on(x), self.on(x, confirmed=True), self.curves
        table = found.runs[[*SERIES, "run", "seed"]].reset_index(drop=True)
        reached, failed, sustained = found.reached[0], found.failed[0], held.reached[0]
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


def attempts(curves: pd.DataFrame, runs: pd.DataFrame, targets: Sequence[float] | np.ndarray) -> Attempts:
    """At which evaluation each run reached each target.

    Args:
        curves: one row per evaluation (`labkit.tta.curves`) of one metric.
        runs: one row per run (`labkit.tta.run_table`); runs that watched another metric and never evaluated this one
            are left out.
        targets: (L,) values of the metric.

    Raises:
        UserError: a target is beyond any value of the metric.
    """
    targets = np.atleast_1d(np.asarray(targets, float))
    metric = str((curves if len(curves) else runs)["metric"].iloc[0]) if len(runs) else ""
    runs = runs[runs["run"].isin(curves["run"]) | runs["metric"].isna() | (runs["metric"] == metric)]
    known = tracking.METRICS.get(metric)
    if known and len(curves) and (beyond := np.max(targets)) > max(known.high, curves["value"].max()):
        raise UserError(f"the target {beyond:g} is beyond any {known.label}, which is a share: write {beyond / 100:g}.")
    number = pd.Index(runs["run"]).get_indexer(curves["run"])
    order = np.lexsort((curves["wall_s"].to_numpy(float), number))[np.count_nonzero(number < 0) :]
    curves = curves.iloc[order]
    values, counts = curves["value"].to_numpy(float), _evaluations_of(runs, curves)
    up = higher_is_better(metric, runs)
    first, held = (
        tracking.crossing(values, counts, targets, in_a_row, higher_is_better=up)
        for in_a_row in (1, runs["confirm"].to_numpy())
    )
    return Attempts(curves, runs, metric, targets, first, held)


def _evaluations_of(runs: pd.DataFrame, curves: pd.DataFrame) -> np.ndarray:
    """How many evaluations each run has: (R,)."""
    return np.bincount(pd.Index(runs["run"]).get_indexer(curves["run"]), minlength=len(runs))


def crossings(curves: pd.DataFrame, runs: pd.DataFrame, target: float, *, x: str = "wall_s") -> pd.DataFrame:
    """When each run reached `target`, or what became of it.

    A crossing is the first *evaluation* at or past the target; nothing is interpolated. The sustained crossing begins
    the first streak of evaluations at or past it that confirms the run's target (`labkit.tracking.goal`).

    Args:
        curves: one row per evaluation (`labkit.tta.curves`) of one metric.
        runs: one row per run (`labkit.tta.run_table`).
        target: value of that metric.
        x: "wall_s", "train_s", or another column that grows, in whose unit the times below then are.

    Returns:
        CROSSING_COLUMNS, one row per run that has the axis. outcome is "reached", "failed" (it never would have) or
        "censored" (it was cut off). evaluation is the crossing's place among the run's evaluations, -1 if there is
        none; time_to_target_s, samples_to_target and value are those of the crossing, NaN if there is none;
        last_time_s is the last evaluation, 0 without one; spent_s is `Outcomes.spent`.
    """
    return attempts(curves, runs, [target]).crossings(x)

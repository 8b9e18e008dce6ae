"""When a run reached a target: the first crossing, and the one it never fell back from."""

from __future__ import annotations

import numpy as np
import pandas as pd

from labkit.tracking.goal import metric_named

CLOCKS = ("wall_s", "train_s")
"""Seconds since training started: all of them, as MLPerf counts, or without evaluation and checkpoints."""
SERIES = ["job", "budget", "provenance"]
"""Runs that agree in these columns differ only by seed, and are pooled."""


def higher_is_better(metric: str, runs: pd.DataFrame) -> bool:
    """Whether a larger value of the metric is the better one.

    Args:
        metric: its name; of one that labkit does not know, the runs that watched it say so, else it falls as losses do.
        runs: one row a run (`labkit.tta.run_table`).

    >>> runs = pd.DataFrame({"metric": ["perplexity", "bleu"], "higher_is_better": [False, True]})
    >>> higher_is_better("auc", runs), higher_is_better("bleu", runs), higher_is_better("perplexity", runs)
    (True, True, False)
    """
    told = runs.loc[runs["metric"] == metric, "higher_is_better"].dropna()
    return metric_named(metric, None if told.empty else bool(told.iloc[0])).higher_is_better


def crossings(curves: pd.DataFrame, target: float, *, higher_is_better: bool, x: str = "wall_s") -> pd.DataFrame:
    """Where each run first reached `target`, and where it reached it for good.

    A crossing is the first *evaluation* at or past the target. Nothing is interpolated: between two
    evaluations nobody knew the value. A crossing is sustained when no later evaluation falls back.

    Args:
        curves: one row an evaluation (see `labkit.tta.curves`) of one metric.
        target: value of that metric.
        higher_is_better: direction of the metric.
        x: the clock, "wall_s" or "train_s"; or another column that grows, such as "samples", "energy_j" or "cost_usd",
            in whose unit the times below then are.

    Returns:
        One row a run: job, budget, provenance, run, seed, reached, sustained, time_to_target_s and
        samples_to_target (NaN if not reached), sustained_time_s (NaN if not sustained), value (at the
        crossing), last_time_s and last_samples (the last evaluation, where a run that did not reach the
        target is censored).
    """
    rows = []
    for (*series, run), curve in curves.groupby([*SERIES, "run"], sort=False, dropna=False):
        curve = curve.sort_values(x, kind="stable")
        value = curve["value"].to_numpy(float)
        passed = np.isfinite(value) & (value >= target if higher_is_better else value <= target)
        first = int(np.argmax(passed)) if passed.any() else None
        failed_last = np.flatnonzero(~passed)
        final = int(failed_last[-1]) + 1 if failed_last.size else 0
        sustained = first is not None and final < len(passed)
        clock, samples = curve[x].to_numpy(float), curve["samples"].to_numpy(float)
        rows.append(
            {
                **dict(zip(SERIES, series, strict=True)),
                "run": run,
                "seed": curve["seed"].iloc[0],
                "reached": first is not None,
                "sustained": sustained,
                "time_to_target_s": np.nan if first is None else clock[first],
                "samples_to_target": np.nan if first is None else samples[first],
                "sustained_time_s": clock[final] if sustained else np.nan,
                "value": np.nan if first is None else value[first],
                "last_time_s": clock[-1],
                "last_samples": samples[-1],
            }
        )
    return pd.DataFrame(rows, columns=CROSSING_COLUMNS)


CROSSING_COLUMNS = [
    *SERIES,
    "run",
    "seed",
    "reached",
    "sustained",
    "time_to_target_s",
    "samples_to_target",
    "sustained_time_s",
    "value",
    "last_time_s",
    "last_samples",
]

"""What a job's part of the page shows at every target of its slider: computed here, looked up there."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from labkit.plots.time_to_accuracy import finding, nearest
from labkit.plots.words import axis_text, seconds_text
from labkit.report.table import target_cells
from labkit.tta.summary import target_columns
from labkit.tta.thresholds import CLOCKS, SERIES, attempts

SLIDER_STEPS = 100
ENDINGS = {
    "done": "ended",
    "failed": "failed",
    "stopped": "stopped",
    "interrupted": "was interrupted",
    "running": "still running,",
}
"""How a run without an evaluation is told of, by its status"""


def target_grid(values: pd.Series, targets: list[float], up: bool) -> list[float]:
    """The slider's targets, from low to high: from where half of the training was done to a little past the best value.

    Args:
        values: every evaluation of the job.
        targets: the one that is shown first, and those of the runs: in the grid as they are, among round numbers.
        up: whether higher is better.
    """
    target = targets[0]
    near = nearest(values, target, 0.5)
    low, high = min(near.min(), *targets), max(near.max(), *targets)
    low, high = (low, max(high, values.max())) if up else (min(low, values.min()), high)
    rough = (high - low) / SLIDER_STEPS or 0.001
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-9))
    places = max(0, -math.floor(math.log10(step) + 1e-9))
    first, last = math.floor(low / step) - 2 * (not up), math.ceil(high / step) + 2 * up
    if low > 0:
        first = max(first, min(1, math.floor(low / step)))  # above 0, which a logarithmic axis lacks
    round_ones = {round(place * step, places) for place in range(first, last + 1)}
    return sorted(each for each in {*round_ones, *targets} if each > 0 or low <= 0)


def of_targets(
    curves: pd.DataFrame, runs: pd.DataFrame, grid: list[float], times: dict[str, pd.DataFrame], label: str
) -> dict:
    """What the page shows at each target: lists by place in the grid, then by series or run.

    Args:
        curves: one row an evaluation, of one job and metric.
        runs: its rows of `run_table`.
        grid: the targets.
        times: `survival` of these targets by axis, "wall_s", "train_s" and "samples" among them.
        label: the metric's.
    """
    return {
        "grid": grid,
        "cells": {clock: _cells(target_columns(times, _tiers(runs), clock), len(grid)) for clock in CLOCKS},
        "medians": {x: _medians(frame, x, len(grid)) for x, frame in times.items()},
        "findings": {
            x: [finding(label, target, own, x) for target, own in frame.groupby("target", sort=True)]
            for x, frame in times.items()
        },
        "first": _evaluations(curves, runs, grid, confirmed=False),
        "held": _evaluations(curves, runs, grid, confirmed=True),
    }


def run_words(row: object, places: dict[str, list[float]]) -> dict:
    """When an evaluation of a run was, by clock, and what became of a run that reached nothing.

    Args:
        row: of `run_table`.
        places: the clocks at its evaluations.
    """
    words = {clock: [seconds_text(each) for each in places[clock]] for clock in CLOCKS}
    missed = {clock: f"{ENDINGS.get(row.status, row.status)} before the first evaluation" for clock in CLOCKS}
    for clock in CLOCKS if places["wall_s"] else ():
        end = places[clock][-1]
        if row.unreached == "failed" and math.isfinite(getattr(row, clock)):
            end = max(end, getattr(row, clock))
        missed[clock] = f"{'failed after' if row.unreached == 'failed' else 'censored at'} {seconds_text(end)}"
    return {"at": words, "missed": missed}


def _tiers(runs: pd.DataFrame) -> list[str | None]:
    return list(runs.drop_duplicates(SERIES)["tier"])


def _by_target(values: list, count: int) -> list[list]:
    """From one list, series after series, to one list a target."""
    return [list(each) for each in zip(*(values[at : at + count] for at in range(0, len(values), count)), strict=True)]


def _cells(table: pd.DataFrame, count: int) -> list[list[list[str]]]:
    return _by_target([target_cells(row) for row in table.to_dict("records")], count)


def _medians(frame: pd.DataFrame, x: str, count: int) -> dict:
    series = list(dict.fromkeys(frame[["budget", "provenance"]].itertuples(index=False, name=None)))
    columns = {name: [_finite(value) for value in frame[name]] for name in ("median", "low", "high")}
    columns["label"] = [axis_text(value, x) for value in frame["median"]]
    return {"series": series, **{name: _by_target(values, count) for name, values in columns.items()}}


def _evaluations(curves: pd.DataFrame, runs: pd.DataFrame, grid: list[float], *, confirmed: bool) -> list[list[int]]:
    return attempts(curves, runs, np.array(grid), confirmed=confirmed).evaluation.tolist()


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None

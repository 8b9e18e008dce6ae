"""One job's part of the page: the figures and the data that its script works on."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from labkit.plots import figure_time_against_target, figure_time_to_accuracy
from labkit.plots.describe import in_words
from labkit.plots.time_against_target import TITLES
from labkit.plots.time_to_accuracy import nearest
from labkit.plots.words import AXIS_TITLES, budget_words, metric_label
from labkit.report import markup
from labkit.report.headline import headline
from labkit.report.table import NO_METRIC
from labkit.tta import (
    band,
    default_target,
    higher_is_better,
    summary,
    survival,
    time_against_target,
    with_cost,
)
from labkit.tta.cost import price_usd_per_h
from labkit.tta.summary import all_crossings
from labkit.tta.thresholds import SERIES

AXIS_CHOICES = {"wall_s": "Wall time", "train_s": "Training time", "samples": "Samples", "cost_usd": "Cost"}
SLIDER_STEPS = 100
GRID_TARGETS = 40


@dataclass(frozen=True)
class Section:
    """One job, ready for the page."""

    headline: str
    html: str
    payload: dict


def build_section(identifier: str, curves: pd.DataFrame, runs: pd.DataFrame) -> Section:
    """The section of one (job, metric).

    Args:
        identifier: unique on the page; a valid HTML id.
        curves: the job's evaluations; may be empty.
        runs: the job's rows of `run_table`.
    """
    metric = str(runs["metric"].iloc[0] or NO_METRIC)
    up = higher_is_better(metric, runs)
    curves = with_cost(curves).astype({"value": float})
    curves["value"] = curves["value"].where(np.isfinite(curves["value"]))  # a diverged evaluation is a gap
    measured = bool(curves["value"].notna().any())
    target = default_target(curves, runs) if measured else float(runs["target"].max())
    table = summary(curves, runs, target)
    hits = all_crossings(curves, runs, target, higher_is_better=up)
    payload = {
        "id": identifier,
        "metric": metric,
        "metric_label": metric_label(metric),
        "higher_is_better": up,
        "target": target if math.isfinite(target) else None,
        "groups": [_group(series, group, curves) for series, group in runs.groupby(SERIES, sort=False, dropna=False)],
        "axes": [],
    }
    parts = [markup.header(identifier, table, runs, curves)]
    if measured:
        payload |= _figures(curves, hits, target, up, payload["groups"])
        parts += [markup.controls(payload), markup.figure(payload)]
    parts.append(markup.results_table(identifier, table, payload))
    if measured:
        parts.append(markup.target_figure(payload))
    parts += [markup.run_list(identifier, runs, curves, hits), "</section>"]
    return Section(headline(table), "\n".join(parts), payload)


def _group(series: tuple, runs: pd.DataFrame, curves: pd.DataFrame) -> dict:
    own = {run: curve for run, curve in curves.groupby("run", sort=False)}
    return {
        "budget": series[1],
        "words": budget_words(series[1]),
        "provenance": series[2],
        "price_usd_per_h": price_usd_per_h(runs["tier"].iloc[0]).value_usd,
        "runs": [
            {
                "run": row.run,
                "seed": str(row.seed),
                "status_words": markup.STATUS_WORDS[row.status],
                **{
                    name: [_finite(value) for value in own[row.run][name]] if row.run in own else []
                    for name in ("wall_s", "train_s", "samples", "value")
                },
            }
            for row in runs.itertuples()
        ],
    }


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _figures(curves: pd.DataFrame, hits: pd.DataFrame, target: float, up: bool, groups: list[dict]) -> dict:
    metric = str(curves["metric"].iloc[0])
    keys = ["wall_s", "train_s", "samples", *(["cost_usd"] if curves["cost_usd"].notna().any() else [])]
    levels = np.linspace(curves["value"].min(), curves["value"].max(), 120)
    bands = {key: band(curves, higher_is_better=up, x=key, levels=levels) for key in keys}
    figure = figure_time_to_accuracy(curves, target, crossings=hits, survival=survival(hits), bands=bands["wall_s"])
    slider = slider_range(curves["value"].dropna(), target, up)
    grid = np.linspace(slider["min"], slider["max"], GRID_TARGETS)
    times = time_against_target(curves, grid, higher_is_better=up)
    target_figure = figure_time_against_target(times, target, metric=metric, higher_is_better=up)
    series = [key for key, _ in curves.groupby(SERIES, sort=False, dropna=False)]
    labels = [(group["budget"], group["provenance"]) for group in groups]
    return {
        "axes": [
            {"key": key, "label": AXIS_CHOICES[key], "title": AXIS_TITLES[key], "target_title": TITLES[key]}
            for key in keys
        ],
        "slider": slider,
        "grid": grid.tolist(),
        "figure": json.loads(figure.to_json()),
        "target_figure": json.loads(target_figure.to_json()),
        "description": in_words(figure),
        "target_description": in_words(target_figure),
        "finding": figure.layout.meta["finding"],
        "drawn": [labels.index(tuple(key[1:])) for key in series],
        "bands": {key: [_polygon(frame, one) for one in series] for key, frame in bands.items()},
        "band_kinds": list(dict.fromkeys(bands["wall_s"]["kind"])),
    }


def _polygon(bands: pd.DataFrame, series: tuple) -> dict | None:
    own = bands[(bands[SERIES] == list(series)).all(axis=1)]
    if own.empty:
        return None
    return {"x": [*own["low"], *own["high"][::-1]], "y": [*own["level"], *own["level"][::-1]]}


def slider_range(values: pd.Series, target: float, up: bool) -> dict:
    """Limits of the target slider: from where half of the training was done to a little past the best value.

    Its steps are round numbers, and the target lies on one: a browser moves a value between two steps.

    Args:
        values: every evaluation of the job.
        target: where the slider starts.
        up: whether higher is better.
    """
    near = nearest(values, target, 0.5)
    low, high = min(near.min(), target), max(near.max(), target)
    if up:
        high = max(high, values.max())
    else:
        low = min(low, values.min())
    rough = (high - low) / SLIDER_STEPS or 0.001
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-9))
    below = math.ceil((target - low) / step) + 2 * (not up)
    above = math.ceil((high - target) / step) + 2 * up
    if not up and target > 0:
        below = min(below, max(0, math.ceil(target / step - 1e-9) - 1))  # above 0, which a log axis lacks
    places = max(0, -math.floor(math.log10(step) + 1e-9), len(f"{target:.10f}".rstrip("0").partition(".")[2]))
    return {
        "min": round(target - below * step, places),
        "max": round(target + above * step, places),
        "step": round(step, places),
        "value": target,
    }

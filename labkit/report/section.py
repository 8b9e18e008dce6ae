"""One job's part of the page: the figures and the data that its script looks up."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from labkit.plots import figure_time_against_target, figure_time_to_accuracy
from labkit.plots.describe import in_words
from labkit.plots.time_against_target import TITLES
from labkit.plots.words import AXIS_TITLES, metric_label
from labkit.report import markup
from labkit.report.headline import headline
from labkit.report.lookup import of_targets, run_words, target_grid
from labkit.report.table import NO_METRIC
from labkit.tta import band, crossings, default_target, higher_is_better, summary, survival, with_cost
from labkit.tta.thresholds import SERIES

AXIS_CHOICES = {"wall_s": "Wall time", "train_s": "Training time", "samples": "Samples", "cost_usd": "Cost"}
BAND_LEVELS = 80


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
    hits = crossings(curves, runs, target)
    payload = {
        "id": identifier,
        "metric": metric,
        "metric_label": metric_label(metric),
        "higher_is_better": up,
        "target": target if math.isfinite(target) else None,
        "groups": _groups(runs, curves),
        "axes": [],
    }
    parts = [markup.header(identifier, table, runs, curves)]
    if measured:
        payload |= _figures(curves, runs, hits, target, up)
        parts += [markup.controls(payload), markup.figure(payload)]
    parts.append(markup.results_table(identifier, table, payload))
    if measured:
        parts.append(markup.target_figure(payload))
    parts += [markup.run_list(identifier, runs, curves, hits, payload), "</section>"]
    return Section(headline(table), "\n".join(parts), payload)


def _groups(runs: pd.DataFrame, curves: pd.DataFrame) -> list[dict]:
    """Series of runs with their evaluations; `number` is a run's place in the runs of the job."""
    columns = ("wall_s", "train_s", "samples", "cost_usd", "value")
    curves = curves.sort_values("wall_s", kind="stable")
    rows = curves.groupby("run", sort=False).indices
    values = {name: curves[name].astype(object).where(np.isfinite(curves[name]), None).to_numpy() for name in columns}
    groups = []
    for series, places in runs.reset_index(drop=True).groupby(SERIES, sort=False, dropna=False).indices.items():
        listed = []
        for number, row in zip(places, runs.iloc[places].itertuples(), strict=True):
            own = rows.get(row.run, [])
            evaluations = {name: values[name][own].tolist() for name in columns}
            listed.append({"run": row.run, "number": int(number), **evaluations, **run_words(row, evaluations)})
        groups.append({"budget": series[1], "provenance": series[2], "runs": listed})
    return groups


def _figures(curves: pd.DataFrame, runs: pd.DataFrame, hits: pd.DataFrame, target: float, up: bool) -> dict:
    metric = str(curves["metric"].iloc[0])
    keys = ["wall_s", "train_s", "samples", *(["cost_usd"] if curves["cost_usd"].notna().any() else [])]
    grid = target_grid(curves["value"].dropna(), [target, *runs["target"].dropna().unique()], up)
    levels = np.linspace(curves["value"].min(), curves["value"].max(), BAND_LEVELS)
    found = {key: survival(curves, runs, [*grid, *levels], x=key) for key in keys}
    is_target = np.tile(np.arange(len(grid) + len(levels)) < len(grid), runs.groupby(SERIES, dropna=False).ngroups)
    times = {key: frame[is_target[: len(frame)]] for key, frame in found.items()}
    bands = {key: band(frame[~is_target[: len(frame)]]) for key, frame in found.items()}
    shown = times["wall_s"][times["wall_s"]["target"] == target]
    figure = figure_time_to_accuracy(curves, target, crossings=hits, survival=shown, bands=bands["wall_s"])
    target_figure = figure_time_against_target(times["wall_s"], target, metric=metric, higher_is_better=up)
    series = [key for key, _ in curves.groupby(SERIES, sort=False, dropna=False)]
    labels = list(dict.fromkeys(runs[["budget", "provenance"]].itertuples(index=False, name=None)))
    return {
        "axes": [
            {"key": key, "label": AXIS_CHOICES[key], "title": AXIS_TITLES[key], "target_title": TITLES[key]}
            for key in keys
        ],
        "start": grid.index(target),
        **of_targets(curves, runs, grid, times, metric_label(metric)),
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

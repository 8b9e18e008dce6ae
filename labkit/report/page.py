"""One self-contained page about any set of runs: it opens from a file, without a network; a section per job."""

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pandas as pd
import plotly.graph_objects as go
from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup
from plotly.offline import get_plotlyjs
from plotly.utils import PlotlyJSONEncoder

from labkit import __version__, plots, tracking, tta
from labkit.report import summary_text as texts
from labkit.runs import SERIES, Frames, Series, note_left_out, notes_kept, readable_runs, replace_text

FOLDER = Path(__file__).parent
SCRIPT = FOLDER / "page.js"
AXES = {
    "wall_s": "Wall time", "train_s": "Training time", "samples": "Samples", "energy_j": "Energy", "cost_usd": "Cost",
}  # fmt: skip
"""Horizontal axes that the page offers, where something is known on them"""
BAND_LEVELS = 80
SLIDER_STEPS = 100
SHAPES = {
    "circle": "●", "square": "■", "diamond": "◆", "triangle-up": "▲", "cross": "✚", "x": "✖",
    "circle-open": "○", "square-open": "□", "diamond-open": "◇", "triangle-up-open": "△", "cross-open": "✛",
    "x-open": "✕",
}  # fmt: skip
ENDINGS = {"done": "ended", "interrupted": "was interrupted", "running": "still running,"}
"""What a run without an evaluation did, where its status is not such a word already"""


def write_report(folders: Frames | Iterable[Path | str], out: Path | str, *, undisturbed: bool = False) -> Path:
    """Write the page about these runs; finished, failed and interrupted ones alike.

    Args:
        folders: run folders; or frames, as `labkit.runs.recorded` gives.
        out: the file to write; its folder is made, an older file is replaced once the new one is whole.
        undisturbed: leave out runs that other programs disturbed.

    Returns:
        The file's absolute path.
    """
    if isinstance(folders, Frames):
        return write_page(out, build_page(folders.curves, folders.runs, texts.frames_facts(folders.runs)))
    with notes_kept() as left_out:
        records = readable_runs(folders)
        runs = tta.table_of(records, undisturbed=undisturbed)
        curves = tta.with_energy(tta.curves(runs["folder"], runs=runs), runs)
    shown = set(runs["run"])
    facts = texts.page_facts([record for folder, record in records if folder.name in shown], left_out)
    return write_page(out, build_page(curves, runs, facts))


def build_page(curves: pd.DataFrame, runs: pd.DataFrame, facts: dict[str, str]) -> str:
    """The page as text, from `labkit.tta.curves`, `labkit.tta.run_table`, and the facts at its head by their terms."""
    sections, errors = [], []
    with notes_kept() as left_out:
        for number, ((job, _), own) in enumerate(runs.groupby(["job", "metric"], sort=False, dropna=False)):
            try:
                sections.append(build_section(f"job{number}", curves[curves["run"].isin(own["run"])], own))
            except Exception as error:  # whatever the numbers of one job do, the page of the others stays
                errors.append(error)
                note_left_out(Path(str(job)), str(error))
    if errors and not sections:
        raise errors[0]
    if left_out:
        facts = facts | {"Left out": " ".join([facts.get("Left out", ""), *left_out]).strip()}
    data = {
        "jobs": [section.pop("payload") for section in sections],
        "columns": texts.OF_TARGET,
        "config": {**plots.OFFLINE, "responsive": True},
        "dark": plots.in_the_dark(),
    }
    script = Markup(SCRIPT.read_text("utf-8"))
    fixed: Any = {"palettes": plots.PALETTES, "headings": texts.HEADINGS, "script": script}
    text = htmlsafe_json_dumps(data, separators=(",", ":"), allow_nan=False)  # cannot end its script element
    return render("page.html", sections=sections, facts=facts, data=text, **fixed)


def render(template: str, folder: Path = FOLDER, **values: Any) -> str:
    """A template of this folder, or of one whose templates include these, with these values, whose text is escaped."""
    loader = jinja2.FileSystemLoader([folder, FOLDER], encoding="utf-8")
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)
    files = {"css": Markup((FOLDER / "page.css").read_text("utf-8")), "plotly": Markup(get_plotlyjs())}
    return environment.get_template(template).render(version=__version__, **files, **values)


def write_page(out: Path | str, html: str) -> Path:
    """Write a page, whose folder is made, and return its absolute path."""
    out = Path(out).absolute()
    out.parent.mkdir(parents=True, exist_ok=True)
    replace_text(out, html)
    return out


def build_section(identifier: str, curves: pd.DataFrame, runs: pd.DataFrame) -> dict[str, Any]:
    """The section of one (job, metric); the identifier is an HTML id on the page.

    Returns:
        What job.html shows, and as `payload` what page.js reads.
    """
    # runs that can be drawn come first, so that a series has the same number in the tables as in the figures
    runs = runs.sort_values("run", key=lambda run: ~run.isin(set(curves["run"])), kind="stable", ignore_index=True)
    order = curves["run"].map({run: place for place, run in enumerate(runs["run"])})
    curves = tta.with_cost(curves).assign(order=order, value=curves["value"].astype(float))
    curves = curves.sort_values(["order", "wall_s"], kind="stable", ignore_index=True)
    curves["value"] = curves["value"].where(np.isfinite(curves["value"]))  # a diverged evaluation is a gap
    metric = str(runs["metric"].iloc[0] or texts.NO_METRIC)
    up, measured = tta.higher_is_better(metric, runs), bool(curves["value"].notna().any())
    target = tta.default_target(curves, runs) if measured else float(runs["target"].max())
    grid, levels = [target], np.array([])
    if measured:
        targets = [target, *runs["target"].dropna().unique()]
        grid = target_grid(curves["value"].dropna(), targets, tracking.metric_named(metric, up))
        levels = np.linspace(curves["value"].min(), curves["value"].max(), BAND_LEVELS)
    start, labels = grid.index(target) if measured else 0, [texts.goal_text(metric, each) for each in grid]
    # found once, for the slider's targets and the levels of the bands; all that follows reads from it
    found = tta.attempts(curves, runs, [*grid, *levels])
    shown = found.at([start])
    table = tta.summary_of(shown)
    series = list(runs.groupby(SERIES, sort=False, dropna=False).indices.values())
    drawn = [Series(*key) for key in curves.groupby(SERIES, sort=False, dropna=False).groups]
    payload: dict[str, Any] = {
        "id": identifier,
        "grid": grid if measured else [],
        "labels": labels,
        "start": start,
        **_of_runs(found, len(grid), series),
        **(_figures(found, shown, grid, drawn) if measured else {"axes": []}),
    }
    section: dict[str, Any] = {
        "payload": payload,
        "headline": texts.headline(table),
        "id": identifier,
        "title": texts.job_name(runs["job"].iloc[0]),
        "about": _about(runs, curves, len(series)),
        "goal": "the training" if math.isnan(target) else labels[start],
        "results": [texts.summary_cells(row) for row in table.to_dict("records")],
        "drawn": [
            SHAPES[plots.encoding(number, each.provenance).mark()["symbol"]] for number, each in enumerate(drawn)
        ],
        "notes": texts.notes(table),
        "runs": _rows(payload, found, series),
        "axes": {axis["key"]: AXES[axis["key"]] for axis in payload["axes"]},
    }
    if measured:
        (first, *_), ways = payload["axes"], ("easier", "harder") if up else ("harder", "easier")
        section |= {"metric": plots.metric_label(metric), "most": len(grid) - 1, "start": start, "target": target}
        section |= {"ends": list(zip((grid[0], grid[-1]), ways, strict=True)), "description": first["description"]}
        section |= {"finding": first["findings"][start], "targets_description": first["targets_description"]}
    return section


def target_grid(values: pd.Series, targets: list[float], metric: "tracking.Metric") -> list[float]:
    """The slider's targets, from low to high: from where half of the training was done to a little past the best value.

    Args:
        values: every evaluation of the job.
        targets: the target that is shown first, and those of the runs; the grid has them as they are, among round
            numbers.
        metric: the grid ends at the best value that it can take.
    """
    up, near = metric.higher_is_better, plots.nearest(values, targets[0], 0.5)
    least, most = min(metric.low, values.min(), targets[0]), max(metric.high, values.max(), targets[0])
    if min(values.min(), targets[0]) > 0:
        least = max(least, math.ulp(0.0))  # above 0, which a logarithmic axis lacks
    targets = [each for each in targets if least <= each <= most]
    low, high = min(near.min(), *targets), max(near.max(), *targets)
    low, high = (low, max(high, values.max())) if up else (min(low, values.min()), high)
    rough = (high - low) / SLIDER_STEPS or 0.001
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-9))
    places = max(0, -math.floor(math.log10(step) + 1e-9))
    # a slider has two ends, even where every value is the best one
    first = math.floor(low / step) - 2 * (not up or low == high)
    last = math.ceil(high / step) + 2 * (up or low == high)
    if low > 0:
        first = max(first, min(1, math.floor(low / step)))
    round_ones = {round(place * step, places) for place in range(first, last + 1)}
    return sorted(each for each in {*round_ones, *targets} if least <= each <= most)


def _about(runs: pd.DataFrame, curves: pd.DataFrame, budgets: int) -> str:
    metric, kinds = runs["metric"].iloc[0], ", ".join(dict.fromkeys(runs["provenance"]))
    measures = f"{plots.metric_label(metric)} on the validation split" if metric else texts.NO_METRIC
    count = f"{plots.counted(len(runs), 'run')} under {plots.counted(budgets, 'budget')}"
    text = f"{count}; {measures}; provenance: {kinds}."
    if metric and (unread := len(runs) - curves["run"].nunique()):
        text += f" {plots.counted(unread, 'run')} ended before the first evaluation and cannot be drawn."
    return text


def _of_runs(found: "tta.Attempts", targets: int, series: list[np.ndarray]) -> dict[str, Any]:
    """The evaluation at which each run reaches a target, as a point on its series' line, and the time of each point.

    Lists go by place in the grid, then by series, then by run.
    """
    runs, curves = found.runs, found.curves
    counts = runs["run"].map(curves.groupby("run").size()).fillna(0).to_numpy(int)
    begins = np.zeros(len(runs), int)
    for places in series:
        begins[places] = np.cumsum(counts[places] + 1) - counts[places] - 1  # a gap lies between two runs

    def points(evaluation: np.ndarray) -> list[list[list[int]]]:
        point = np.where(evaluation < 0, -1, evaluation + begins)  # (targets, runs)
        return [[row[places].tolist() for places in series] for row in point[:targets]]

    lines = [plots.with_gaps(own) for _, own in curves.groupby(SERIES, sort=False, dropna=False)]
    when = {clock: [list(map(plots.seconds_text, line[clock].fillna(0.0))) for line in lines] for clock in tta.CLOCKS}
    last, rows = curves.groupby("run")[list(tta.CLOCKS)].last().reindex(runs["run"]), runs.to_dict("records")
    missed = {
        clock: [[_missed(rows[place], last_s[place], clock) for place in places] for places in series]
        for clock, last_s in ((clock, last[clock].tolist()) for clock in tta.CLOCKS)
    }
    return {"first": points(found.evaluation), "held": points(found.confirmed), "when": when, "missed": missed}


def _missed(run: dict[str, Any], last_s: float, clock: str) -> str:
    """How a run ended that reached nothing."""
    if math.isnan(last_s):
        return f"{ENDINGS.get(run['status'], run['status'])} before the first evaluation"
    if run["unreached"] == "failed":
        return f"failed after {plots.seconds_text(np.fmax(last_s, run[clock]))}"
    return f"censored at {plots.seconds_text(last_s)}"


def _rows(payload: dict, found: "tta.Attempts", series: list[np.ndarray]) -> list[dict[str, Any]]:
    """Rows of the list of runs at the first target; page.js changes their times."""
    of_run, rows = found.curves.groupby("run")["value"], []
    evaluations, last = of_run.size(), of_run.last()
    for number, places in enumerate(series):
        for place, run in enumerate(found.runs.iloc[places].to_dict("records")):
            first, held = (payload[name][payload["start"]][number][place] for name in ("first", "held"))
            time, confirmed = payload["missed"]["wall_s"][number][place], ""
            if first >= 0:
                when = payload["when"]["wall_s"][number]
                time, confirmed = when[first], f"from {when[held]}" if held >= 0 else "no"
            count = evaluations.get(run["run"], 0)
            value = texts.Cell(f"{last[run['run']]:.4f}" if count else "–", plots.counted(count, "evaluation"))
            shown = {"label": Series.of(run).label, "value": value, "time": time, "confirmed": confirmed}
            rows.append(run | shown | {"place": f"{number}-{place}"})
    return rows


def _figures(found: "tta.Attempts", shown: "tta.Attempts", grid: list[float], drawn: list[Series]) -> dict[str, Any]:
    """The figures of each axis with what the slider changes in them, and the cells of the table, by clock."""
    curves, metric, up, (target,) = found.curves, found.metric, found.is_rising, shown.targets
    hits, axes, cells, label = shown.crossings(), [], {}, plots.metric_label(metric)
    times: dict[str, pd.DataFrame] = {}
    for key in AXES:
        if key not in curves or curves[key].isna().all():
            continue
        estimates = tta.survival_of(found, key)
        is_target = np.arange(len(estimates)) % len(found.targets) < len(grid)
        times[key] = own = estimates[is_target].reset_index(drop=True)
        of_target: dict[float, list[dict]] = {}
        for row in own.to_dict("records"):
            of_target.setdefault(row["target"], []).append(row)
        marks = {"crossings": hits, "survival": own[own["target"] == target], "bands": tta.band(estimates[~is_target])}
        curve = plots.figure_time_to_accuracy(curves, target, **marks, x=key)
        low, high = curve.layout.yaxis.range
        ends = np.log10([grid[0], grid[-1]]) if curve.layout.yaxis.type == "log" else (grid[0], grid[-1])
        curve.update_yaxes(range=[min(low, ends[0]), max(high, ends[1])])  # every target can be seen
        against = plots.figure_time_against_target(own, target, metric=metric, higher_is_better=up, x=key)
        axes.append(
            {
                "key": key,
                "curves": _plain(curve),
                "targets": _plain(against),
                "medians": _medians(own, drawn, key, len(grid)),
                "findings": [plots.finding(label, at, of_target[at], key) for at in sorted(of_target)],
                "description": plots.description_text(curve).removesuffix(curve.layout.meta["finding"]).strip(),
                "targets_description": plots.description_text(against),
            }
        )
    for clock in tta.CLOCKS:
        rows = tta.target_columns(times, found.runs, clock).to_dict("records")
        rows = [[cell.__html__() for cell in texts.target_cells(row)] for row in rows]
        cells[clock] = [rows[at :: len(grid)] for at in range(len(grid))]
    return {"axes": axes, "cells": cells}


def _medians(times: pd.DataFrame, drawn: list[Series], x: str, count: int) -> list[list[tuple]]:
    """Median and its text by target and drawn series; no median where it is not reached, or not on this axis."""
    of_series = {Series(*key): own["median"].to_list() for key, own in times.groupby(SERIES, sort=False, dropna=False)}
    medians = [of_series.get(each, [math.inf] * count) for each in drawn]
    return [
        [(median if math.isfinite(median) else None, plots.axis_text(median, x)) for median in of_target]
        for of_target in zip(*medians, strict=True)
    ]


def _plain(figure: go.Figure) -> dict:
    """The figure with lists of numbers, from which a script can pick."""
    content = {"data": [trace.to_plotly_json() for trace in figure.data], "layout": figure.layout.to_plotly_json()}
    return json.loads(json.dumps(content, cls=PlotlyJSONEncoder))

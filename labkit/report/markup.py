"""The HTML of one job's part of the page before its script runs; text from runs is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from importlib.resources import files
from string import Template

import numpy as np
import pandas as pd

from labkit.plots.theme import encoding
from labkit.plots.words import metric_label
from labkit.report.table import HEADINGS, NO_METRIC, job_name, notes, summary_cells

AXES = {"wall_s": "Wall time", "train_s": "Training time", "samples": "Samples", "cost_usd": "Cost"}
"""Those that the page offers"""
RUN_HEADINGS = ("Run", "Budget", "Seed", "Status", "Last value", "Time to target", "Confirmed")
WORDS = ("Budget", "Provenance", "Run", "Status")
"""Columns that are no numbers"""
OF_FIGURES = (
    "choices", "metric", "most", "start", "target", "easier", "harder", "description", "finding", "targets_description",
)  # fmt: skip
"""Places in the template that a job without evaluations leaves empty"""
SHAPES = {"circle": "●", "square": "■", "diamond": "◆", "triangle-up": "▲", "cross": "✚", "x": "✖"}


def section(
    payload: dict, table: pd.DataFrame, runs: pd.DataFrame, curves: pd.DataFrame, series: list[np.ndarray], *, up: bool
) -> str:
    """The section as HTML.

    Args:
        payload: what page.js reads.
        table: `labkit.tta.summary` of the target that is shown first.
        runs: the job's rows of `run_table`.
        curves: its evaluations.
        series: places in `runs` of the runs of each row of `table`.
        up: whether higher is better.
    """
    identifier, metric, at, axes = payload["id"], runs["metric"].iloc[0], payload["start"], payload["axes"]
    goal = "the training" if np.isnan(table["target"].iloc[0]) else payload["labels"][at]
    values = {
        "id": identifier,
        "title": escape(job_name(runs["job"].iloc[0])),
        "about": escape(_about(runs, curves, len(series))),
        "goal": escape(goal),
        "results": _table(identifier, HEADINGS, _result_rows(table, curves.groupby(["budget", "provenance"]).ngroups)),
        "notes": "".join(f"<li>{escape(line)}</li>" for line in notes(table)),
        "count": len(runs),
        "runs": _table(identifier, RUN_HEADINGS, _run_rows(payload, runs, curves, series)),
        **dict.fromkeys(OF_FIGURES, ""),
        "hidden": "" if axes else "hidden",
    }
    if axes:
        low, high = (f"{end:.6g}" for end in (payload["grid"][0], payload["grid"][-1]))
        values |= {
            "choices": "".join(
                f'<label><input type="radio" name="{identifier}-x" value="{axis["key"]}"{" checked" * (not number)}>'
                f"<span>{AXES[axis['key']]}</span></label>"
                for number, axis in enumerate(axes)
            ),
            "metric": escape(metric_label(metric)),
            "most": len(payload["grid"]) - 1,
            "start": at,
            "target": f"{payload['grid'][at]:.6g}",
            "easier": f"{low} · {'easier' if up else 'harder'}",
            "harder": f"{'harder' if up else 'easier'} · {high}",
            "description": escape(axes[0]["description"]),
            "finding": escape(axes[0]["findings"][at]),
            "targets_description": escape(axes[0]["targets_description"]),
        }
    return Template(files("labkit.report").joinpath("job.html").read_text(encoding="utf-8")).substitute(values)


def cell(text: str) -> str:
    """A cell of a table, what it has in brackets being smaller."""
    main, bracket, rest = text.partition(" (")
    return escape(main) + (f" <small>({escape(rest)}</small>" if bracket else "")


def _about(runs: pd.DataFrame, curves: pd.DataFrame, budgets: int) -> str:
    metric, kinds = runs["metric"].iloc[0], ", ".join(dict.fromkeys(runs["provenance"]))
    measures = f"{metric_label(metric)} on the validation split" if metric else NO_METRIC
    text = f"{_counted(len(runs), 'run')} under {_counted(budgets, 'budget')}; {measures}; provenance: {kinds}."
    if metric and (unread := len(runs) - curves["run"].nunique()):
        text += f" {_counted(unread, 'run')} ended before the first evaluation and cannot be drawn."
    return text


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def _table(identifier: str, heads: Iterable[str], rows: Iterable[tuple[str, list[str]]]) -> str:
    """Head and body of a table; each row has a name for its id, and its cells in HTML."""
    kinds = [' class="words"' * (head in WORDS) for head in heads]
    head = "".join(f'<th scope="col"{kind}>{escape(text)}</th>' for kind, text in zip(kinds, heads, strict=True))
    body = "\n".join(
        f'<tr id="{identifier}-{name}"><th scope="row">{first}</th>'
        + "".join(f"<td{kind}>{text}</td>" for kind, text in zip(kinds[1:], rest, strict=True))
        + "</tr>"
        for name, (first, *rest) in rows
    )
    return f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>"


def _result_rows(table: pd.DataFrame, drawn: int) -> Iterator[tuple[str, list[str]]]:
    for number, row in enumerate(table.to_dict("records")):
        budget, *rest = summary_cells(row)
        look = encoding(number)
        swatch = f'<span class="swatch series-{number % 5}" data-mark="{SHAPES[look.marker]}"></span>'
        yield f"row-{number}", [swatch * (number < drawn) + escape(budget), *map(cell, rest)]


def _run_rows(
    payload: dict, runs: pd.DataFrame, curves: pd.DataFrame, series: list[np.ndarray]
) -> Iterator[tuple[str, list[str]]]:
    of_run = curves.groupby("run")["value"]
    evaluations, last = of_run.size(), of_run.last()
    for number, places in enumerate(series):
        for place, run in enumerate(runs.iloc[places].itertuples()):
            first, held = (payload[name][payload["start"]][number][place] for name in ("first", "held"))
            time, confirmed = payload["missed"]["wall_s"][number][place], ""
            if first >= 0:
                when = payload["when"]["wall_s"][number]
                time, confirmed = when[first], f"from {when[held]}" if held >= 0 else "no"
            marked = '<span class="mark">{}</span>'
            status = marked.format(run.status) if run.status in ("failed", "interrupted", "stopped") else run.status
            if run.disturbed:
                status += f" {marked.format('disturbed')} <small>{escape(run.disturbed)}</small>"
            value, count = last.get(run.run, np.nan), evaluations.get(run.run, 0)
            value = f"{value:.4f}" if count else "–"
            value += f" <small>({_counted(count, 'evaluation')})</small>"
            cells = (escape(run.run), escape(run.budget), escape(str(run.seed)), status, value, time, confirmed)
            yield f"run-{number}-{place}", cells

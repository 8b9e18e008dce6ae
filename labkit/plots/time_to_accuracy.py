"""Time to accuracy: the metric against time, a curve a run, a band a budget, and where the target is met."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from labkit.errors import UserError
from labkit.plots.theme import INK, encoding, faint
from labkit.plots.words import AXIS_TITLES, axis_text, budget_words, is_not_known, metric_label

SERIES = ["job", "budget", "provenance"]
ERROR_RATES = ("cer", "wer")


def figure_time_to_accuracy(
    curves: pd.DataFrame,
    target: float,
    *,
    crossings: pd.DataFrame | None = None,
    survival: pd.DataFrame | None = None,
    bands: pd.DataFrame | None = None,
    x: str = "wall_s",
    log_y: bool | None = None,
    template: str = "labkit_light",
) -> go.Figure:
    """The metric against time, for the runs of one job.

    Args:
        curves: one row an evaluation: run, job, budget, seed, provenance, metric, samples, wall_s, train_s,
            value.
        target: value of the metric to reach; drawn as a line.
        crossings: one row a run (`labkit.tta.crossings`); marks each run's first crossing.
        survival: one row a series (`labkit.tta.survival`), on the axis x; marks the median.
        bands: level, low, high (in the unit of x) and kind a series (`labkit.tta.band`); shades them.
        x: the column on the x axis: "wall_s", "train_s", "samples", "energy_j" or "cost_usd".
        log_y: whether the metric's axis is logarithmic; None chooses by the metric, as `value_axis` says.
        template: "labkit_light" or "labkit_dark".

    Returns:
        A figure with one trace of each kind a series: in `meta`, its kind (band, run, reached, median), the series'
        number and name. The runs of a series are curves of one trace, with gaps between them.
        `layout.meta["finding"]` says in words what the medians say.

    Raises:
        UserError: there is no evaluation.
    """
    if curves.empty:
        raise UserError("none of these runs was evaluated yet, so there is no curve: let a run go on for longer.")
    metric = str(curves["metric"].iloc[0])
    label = metric_label(metric)
    axis = value_axis(curves["value"], target, metric, log=log_y)
    figure = go.Figure(layout={"template": template})
    groups = [each for each in curves.groupby(SERIES, sort=False, dropna=False)]  # list() asks for its length, slowly
    longest = float(curves[x].max())
    by_run = curves.drop_duplicates("run")
    seeds = dict(zip(by_run["run"], by_run["seed"].map(lambda seed: escape(str(seed))), strict=True))
    for number, (series, group) in enumerate(groups):
        look, name = encoding(number, template), series_label(*series[1:])
        meta, legend = {"group": number, "name": name}, {"legendgroup": str(number)}
        if bands is not None:
            own = bands[(bands[SERIES] == list(series)).all(axis=1)]
            if len(own):
                figure.add_scatter(
                    x=[*own["low"], *own["high"][::-1]],
                    y=[*own["level"], *own["level"][::-1]],
                    fill="toself",
                    fillcolor=faint(look.color),
                    line={"width": 0},
                    mode="lines",
                    hoverinfo="skip",
                    name=f"{name}: {own['kind'].iloc[0]}",
                    showlegend=False,
                    meta={**meta, "kind": "band"},
                    **legend,
                )
        drawn = with_gaps(group)
        hover = np.stack([drawn["wall_s"], drawn["samples"], drawn["run"].map(seeds)], axis=-1).astype(object)
        hover[drawn["run"].isna()] = None  # a notebook's messages have no NaN
        figure.add_scatter(
            x=drawn[x],
            y=drawn["value"],
            mode="lines+markers",
            line={"color": look.color, "dash": look.dash, "width": 2},
            marker={"symbol": look.marker, "size": 6, "color": look.color},
            name=name,
            customdata=hover,
            hovertemplate=f"<b>{escape(label)} %{{y:.4f}}</b><br>%{{customdata[0]:.1f}} s wall time"
            f"<br>%{{customdata[1]:,.0f}} samples<br>seed %{{customdata[2]}}<extra>{name}</extra>",
            meta={**meta, "kind": "run", "curves": group["run"].nunique()},
            **legend,
        )
        if crossings is not None:
            hits = crossings[crossings["run"].isin(group["run"]) & crossings["reached"]]
            figure.add_scatter(**_reached(group, hits, x, look, template), meta={**meta, "kind": "reached"}, **legend)
        if survival is not None:
            own = survival[(survival[SERIES] == list(series)).all(axis=1)]
            figure.add_scatter(
                **_median(own["median"].iloc[0], number, target, axis, longest, x, look, template),
                meta={**meta, "kind": "median"},
                **legend,
            )
    _mark_target(figure, target, axis, INK[template])
    figure.update_xaxes(title_text=AXIS_TITLES[x], range=[0, 1.03 * longest])
    figure.update_yaxes(
        title_text=f"{escape(label)} on the validation split",
        type="log" if axis.log else "linear",
        range=axis.range,
    )
    if axis.log:
        ticks = [digit * 10.0**power for power in range(-5, 6) for digit in (1, 2, 5)]
        figure.update_yaxes(tickvals=ticks, ticktext=[f"{tick:g}" for tick in ticks])
    figure.update_layout(
        height=460,
        meta={"finding": finding(label, target, survival, x) if survival is not None else "", "x": x},
    )
    return figure


def with_gaps(curves: pd.DataFrame) -> pd.DataFrame:
    """The evaluations run after run, with an empty row between two runs, at which the pen is lifted."""
    rows = curves.sort_values("run", key=lambda run: pd.factorize(run)[0], kind="stable")
    rows.index = np.arange(len(rows)) + (rows["run"] != rows["run"].shift()).cumsum() - 1
    return rows.reindex(range(rows.index[-1] + 1))


def series_label(budget: str, provenance: str) -> str:
    """The legend's name of a series, safe inside plotly's small HTML.

    >>> series_label("all-cores", "measured")
    'all-cores · measured'
    """
    return escape(f"{budget} · {provenance}")


@dataclass(frozen=True)
class ValueAxis:
    """The y axis: its ends in units of the metric, and whether it is logarithmic."""

    low: float
    high: float
    log: bool

    def at(self, share: float) -> float:
        """The value at this share of the way up."""
        if self.log:
            return self.low * (self.high / self.low) ** share
        return self.low + share * (self.high - self.low)

    @property
    def range(self) -> list[float]:
        """As plotly wants it: exponents of ten on a logarithmic axis."""
        return [math.log10(self.low), math.log10(self.high)] if self.log else [self.low, self.high]


def value_axis(values: pd.Series, target: float, metric: str, *, log: bool | None = None) -> ValueAxis:
    """An axis on which the start of training, at chance level, does not squash the part around the target.

    Error rates fall over more than one power of ten, so theirs is logarithmic unless `log` says otherwise; an axis that
    has to show 0 or less never is. Elsewhere,
    when leaving out the third of the evaluations that lie furthest from the target makes the range much
    smaller, the axis starts there; the reader can still zoom out.
    """
    values = values[np.isfinite(values)]
    if (metric in ERROR_RATES if log is None else log) and min(values.min(), target) > 0:
        low, high = min(values.min(), target), max(values.max(), target)
        return ValueAxis(float(low / 2), float(high * 1.12), True)  # room below for the medians' labels
    near = nearest(values, target, 2 / 3)
    squashed = values.max() - values.min() >= 1.5 * (near.max() - near.min())
    shown = near if squashed else values
    low, high = min(shown.min(), target), max(shown.max(), target)
    margin = 0.08 * (high - low) or 0.05 * abs(target) or 1.0
    falling = values.median() > target
    return ValueAxis(float(low - margin * (3 if falling else 1)), float(high + margin), False)


def nearest(values: pd.Series, target: float, share: float) -> pd.Series:
    """The share of the values that lies nearest to the target."""
    distance = (values - target).abs()
    return values[distance <= distance.quantile(share)]


def finding(label: str, target: float, survival: pd.DataFrame, x: str) -> str:
    """The medians in one sentence, fastest first."""
    rows = zip(*(survival[name] for name in ("budget", "median", "reached", "failed", "runs")), strict=True)
    parts = []
    for budget, median, reached, failed, runs in sorted(rows, key=lambda row: row[1]):
        words = "not known" if is_not_known(median, failed, runs) else axis_text(median, x)
        parts.append(f"{budget_words(budget)} {words} ({reached} of {runs} runs)")
    return f"Target {label} {target:.6g}, median until it was reached: {'; '.join(parts)}."


def _reached(group: pd.DataFrame, hits: pd.DataFrame, x: str, look, template: str) -> dict:
    # the evaluation at the crossing, by its place in samples: the same on every x axis
    found = group.merge(hits[["run", "samples_to_target"]], on="run")
    found = found[found["samples"] == found["samples_to_target"]].drop_duplicates("run")
    return {
        "x": found[x],
        "y": found["value"],
        "mode": "markers",
        "marker": {
            "symbol": f"{look.marker}-open",
            "size": 14,
            "color": look.color,
            "line": {"width": 2.5, "color": look.color},
        },
        "name": "first crossing",
        "showlegend": False,
        "hoverinfo": "skip",
    }


def _median(
    median: float,
    number: int,
    target: float,
    axis: ValueAxis,
    longest: float,
    x: str,
    look,
    template: str,
) -> dict:
    # each series' label on a line of its own above the axis, so that close medians stay readable
    foot = axis.at(0.03 + 0.075 * number)
    there = np.isfinite(median)
    return {
        "x": [median, median, median] if there else [],
        "y": [target, foot, axis.low] if there else [],
        "mode": "lines+text",
        "line": {"color": look.color, "width": 1.5, "dash": "dot"},
        "text": ["", f" {axis_text(median, x)} ", ""] if there else [],
        "textposition": "middle left" if median > 0.75 * longest else "middle right",
        "textfont": {"color": INK[template], "size": 13},
        "name": "median",
        "showlegend": False,
        "hoverinfo": "skip",
    }


def _mark_target(figure: go.Figure, target: float, axis: ValueAxis, ink: str) -> None:
    figure.add_shape(
        type="line",
        xref="paper",
        x0=0,
        x1=1,
        y0=target,
        y1=target,
        line={"color": ink, "width": 1.5, "dash": "dash"},
    )
    figure.add_annotation(
        xref="paper",
        x=1,
        xanchor="left",
        xshift=4,
        y=math.log10(target) if axis.log else target,  # plotly: an exponent here, a value in shapes
        align="left",
        showarrow=False,
        text=f"target<br>{target:.6g}",
        font={"size": 12},
    )

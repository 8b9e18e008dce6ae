"""How much longer for a higher target: median time to target, against the target."""

from __future__ import annotations

from html import escape

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from labkit.plots.theme import INK, encoding, faint
from labkit.plots.time_to_accuracy import SERIES, series_label
from labkit.plots.words import metric_label

TITLES = {
    "wall_s": "Median wall time to target (s)",
    "train_s": "Median training time to target (s)",
    "samples": "Median training samples to target",
    "cost_usd": "Median cost to target (US$)",
}


def figure_time_against_target(
    times: pd.DataFrame,
    target: float,
    *,
    metric: str,
    higher_is_better: bool,
    x: str = "wall_s",
    template: str = "labkit_light",
) -> go.Figure:
    """Median time to target for every target of a grid, a line a budget; harder targets to the right.

    Args:
        times: one row a (series, target): `labkit.tta.survival` at several targets, on the axis x.
        target: the target in use, drawn as a vertical line.
        metric: its metric.
        higher_is_better: its direction; falling metrics have a reversed axis.
        x: what `median` counts: "wall_s", "train_s", "samples" or "cost_usd".
        template: "labkit_light" or "labkit_dark".

    Returns:
        A figure. A line ends where half of the runs do not reach the target; the shading is the median's interval, of
        fewer than five runs their range, where it has two ends.
    """
    label = metric_label(metric)
    figure = go.Figure(layout={"template": template})
    for number, (series, group) in enumerate(times.groupby(SERIES, sort=False, dropna=False)):
        look, name = encoding(number, template), series_label(*series[1:])
        meta, legend = {"group": number, "name": name}, {"legendgroup": str(number)}
        group = group.sort_values("target")
        full = group[np.isfinite(group["high"])]
        figure.add_scatter(
            x=[*full["target"], *full["target"][::-1]],
            y=[*full["low"], *full["high"][::-1]],
            fill="toself",
            fillcolor=faint(look.color),
            line={"width": 0},
            mode="lines",
            hoverinfo="skip",
            name=f"{name}: interval or range",
            showlegend=False,
            meta={**meta, "kind": "band"},
            **legend,
        )
        figure.add_scatter(
            x=group["target"],
            y=group["median"].where(np.isfinite(group["median"])),
            mode="lines+markers",
            line={"color": look.color, "dash": look.dash, "width": 2, "shape": "linear"},
            marker={"symbol": look.marker, "size": 5, "color": look.color},
            name=name,
            hovertemplate=f"{escape(label)} %{{x:.4f}}<br><b>%{{y:,.4~g}}</b><extra>{name}</extra>",
            meta={**meta, "kind": "run"},
            **legend,
        )
    figure.add_shape(
        type="line",
        yref="paper",
        y0=0,
        y1=1,
        x0=target,
        x1=target,
        line={"color": INK[template], "width": 1.5, "dash": "dash"},
    )
    limits = [float(times["target"].min()), float(times["target"].max())]
    margin = 0.02 * (limits[1] - limits[0])
    limits = [limits[0] - margin, limits[1] + margin]
    figure.update_xaxes(
        title_text=f"Target {escape(label)} (harder to the right)",
        range=limits if higher_is_better else limits[::-1],
    )
    figure.update_yaxes(title_text=TITLES[x], rangemode="tozero")
    figure.update_layout(height=380, meta={"finding": _finding(times, label, higher_is_better), "x": x})
    return figure


def _finding(times: pd.DataFrame, label: str, higher_is_better: bool) -> str:
    parts = []
    for series, group in times.groupby(SERIES, sort=False, dropna=False):
        found = group[np.isfinite(group["median"])].sort_values("target", ascending=higher_is_better)
        if found.empty:
            parts.append(f"{series[1]} reaches none of these targets")
            continue
        easy, hard = found.iloc[0], found.iloc[-1]
        parts.append(
            f"on {series[1]} the median goes from {easy['median']:.3g} at {label} {easy['target']:.4g} "
            f"to {hard['median']:.3g} at {label} {hard['target']:.4g}, the hardest it reaches"
        )
    sentence = "; ".join(parts)
    return sentence[:1].upper() + sentence[1:] + "."

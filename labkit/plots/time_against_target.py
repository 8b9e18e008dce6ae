"""How much longer for a higher target: median time to target, against the target."""

from __future__ import annotations

from html import escape

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from labkit.plots.theme import INK, add_band, new_figure, series
from labkit.plots.words import AXIS_TITLES, metric_label


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
        times: one row a (series, target): `labkit.tta.survival_curve` at several targets, on the axis x.
        target: the target in use, drawn as a vertical line.
        metric: its metric.
        higher_is_better: its direction; falling metrics have a reversed axis.
        x: what `median` counts: "wall_s", "train_s", "samples" or "cost_usd".

    Returns:
        A figure. A line ends where half of the runs do not reach the target; the shading is the median's interval, of
        fewer than five runs their range, where it has two ends.
    """
    label = metric_label(metric)
    figure = new_figure(
        f"Target {escape(label)} (harder to the right)",
        f"Median {AXIS_TITLES[x][0].lower()}{AXIS_TITLES[x][1:]}",
        _finding(times, label, higher_is_better),
        template=template,
        height=380,
    )
    for number, (look, name, group) in enumerate(series(times, "budget", "provenance", template=template)):
        meta, legend = {"group": number, "name": name}, {"legendgroup": str(number)}
        group = group.sort_values("target")
        full = group[np.isfinite(group["high"])]
        places, ends = (full["target"], full["target"]), (full["low"], full["high"])
        band = f"{name}: interval or range"
        add_band(figure, places, ends, look, name=band, meta={**meta, "kind": "band"}, **legend)
        figure.add_scatter(
            x=group["target"],
            y=group["median"].where(np.isfinite(group["median"])),
            **look.curve(5),
            name=name,
            hovertemplate=f"{escape(label)} %{{x:.4f}}<br><b>%{{y:,.4~g}}</b><extra>{name}</extra>",
            meta={**meta, "kind": "run"},
            **legend,
        )
    figure.add_vline(x=target, line={"color": INK[template], "width": 1.5, "dash": "dash"})
    limits = [float(times["target"].min()), float(times["target"].max())]
    margin = 0.02 * (limits[1] - limits[0])
    limits = [limits[0] - margin, limits[1] + margin]
    return figure.update_xaxes(range=limits if higher_is_better else limits[::-1]).update_yaxes(rangemode="tozero")


def _finding(times: pd.DataFrame, label: str, higher_is_better: bool) -> str:
    parts = []
    for (budget, _), group in times.groupby(["budget", "provenance"], sort=False, dropna=False):
        found = group[np.isfinite(group["median"])].sort_values("target", ascending=higher_is_better)
        if found.empty:
            parts.append(f"{budget} reaches none of these targets")
            continue
        easy, hard = found.iloc[0], found.iloc[-1]
        parts.append(
            f"on {budget} the median goes from {easy['median']:.3g} at {label} {easy['target']:.4g} "
            f"to {hard['median']:.3g} at {label} {hard['target']:.4g}, the hardest it reaches"
        )
    sentence = "; ".join(parts)
    return sentence[:1].upper() + sentence[1:] + "."

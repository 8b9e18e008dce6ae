"""What each observer costs: ratios with their intervals, beside the line of no effect."""

from __future__ import annotations

import math
from html import escape

import pandas as pd
import plotly.graph_objects as go

from labkit.plots.theme import encoding


def figure_observer_effect(effects: pd.DataFrame, *, template: str = "labkit_light") -> go.Figure:
    """A row an observer, a mark and an interval for each load or source.

    Args:
        effects: columns observer, ratio, low, high, load and provenance.
        template: "labkit_light" or "labkit_dark".
    """
    figure = go.Figure(layout={"template": template})
    for number, ((load, provenance), own) in enumerate(effects.groupby(["load", "provenance"], sort=False)):
        look = encoding(number, template)
        name = f"{escape(load)} · {escape(provenance)}"
        figure.add_scatter(
            x=own["ratio"],
            y=own["observer"],
            name=name,
            mode="markers",
            marker={"color": look.color, "symbol": look.marker, "size": 10},
            error_x={
                "type": "data",
                "symmetric": False,
                "array": own["high"] - own["ratio"],
                "arrayminus": own["ratio"] - own["low"],
            },
            hovertemplate=f"%{{y}}<br>{name}: %{{x:.3f}} times as long<extra></extra>",
        )
    figure.add_vline(x=1.0, line={"dash": "dot", "width": 1})
    # wide intervals are cut off by the frame: a few rounds on a busy machine must not hide all others
    room = [math.log10(effects["ratio"].min() / 1.5), math.log10(effects["ratio"].max() * 1.5)]
    title = "Time of a step, of that under nobody (ratio, logarithmic)"
    figure.update_xaxes(title_text=title, type="log", range=room, dtick="D2")
    figure.update_yaxes(title_text="Observer", autorange="reversed", automargin=True)
    figure.update_layout(meta={"finding": _finding(effects)})
    return figure


def _finding(effects: pd.DataFrame) -> str:
    dearest = effects.loc[effects["ratio"].idxmax()]
    unclear = ((effects["low"] <= 1) & (effects["high"] >= 1)).sum()
    return (
        f"{dearest['observer']} costs the most: {dearest['ratio']:.2f} times as long on the {dearest['load']} load; "
        f"{unclear} of {len(effects)} intervals include 1."
    )

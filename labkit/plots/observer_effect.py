"""What observers of a run cost it: a ratio of step times with an interval, an observer a row."""

from __future__ import annotations

import math

import pandas as pd
import plotly.graph_objects as go

from labkit.plots.theme import new_figure, series


def figure_observer_effect(effects: pd.DataFrame) -> go.Figure:
    """A row an observer, a mark and an interval for each load or source.

    Args:
        effects: columns observer, ratio, low, high, load and provenance.
    """
    dearest = effects.loc[effects["ratio"].idxmax()]
    unclear = ((effects["low"] <= 1) & (effects["high"] >= 1)).sum()
    figure = new_figure(
        "Time of a step, of that under nobody (ratio, logarithmic)",
        "Observer",
        f"{dearest['observer']} costs the most: {dearest['ratio']:.2f} times as long on the {dearest['load']} load; "
        f"{unclear} of {len(effects)} intervals include 1.",
    )
    for look, name, own in series(effects, "load", "provenance"):
        figure.add_scatter(
            x=own["ratio"],
            y=own["observer"],
            name=name,
            mode="markers",
            marker=look.mark(10),
            error_x=error_bars(own["ratio"], own["low"], own["high"]),
            hovertemplate=f"%{{y}}<br>{name}: %{{x:.3f}} times as long<extra></extra>",
        )
    figure.add_vline(x=1.0, line={"dash": "dot", "width": 1})
    # wide intervals are cut off by the frame: a few rounds on a busy machine must not hide all others
    room = [math.log10(effects["ratio"].min() / 1.5), math.log10(effects["ratio"].max() * 1.5)]
    return figure.update_xaxes(type="log", range=room, dtick="D2").update_yaxes(autorange="reversed")


def error_bars(value: pd.Series, low: pd.Series, high: pd.Series) -> dict:
    """Plotly's error bars from the ends of an interval."""
    return {"type": "data", "symmetric": False, "array": high - value, "arrayminus": value - low, "thickness": 1.2}

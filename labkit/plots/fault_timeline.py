"""How fast each client was before and after one of them failed."""

from __future__ import annotations

import math
from html import escape

import pandas as pd
import plotly.graph_objects as go

from labkit.plots.theme import new_figure, series


def figure_fault_timeline(steps: pd.DataFrame, *, gone_s: float) -> go.Figure:
    """A line a client, with lines where one failed and where it was gone.

    Args:
        steps: columns job, at_s (since the fault), steps_per_s and provenance; the faulty client first.
        gone_s: from the fault until the client was gone.
    """
    figure, changes = new_figure("Time since the fault (s)", "Steps per second"), []
    for look, name, own in series(steps, "job", "provenance"):
        at_s, speed = own["at_s"], own["steps_per_s"]
        hover = f"{name}<br>%{{x:.2f}} s: %{{y:.0f}} steps/s<extra></extra>"
        figure.add_scatter(x=at_s, y=speed, name=name, hovertemplate=hover, **look.curve(7))
        before, during, after = (speed[t].mean() for t in (at_s < 0, at_s.between(0, gone_s), at_s > gone_s))
        middle = "" if math.isnan(during) else f", {during:.0f} until the client was gone"
        changes.append(f"{escape(own['job'].iloc[0])}: {before:.0f} steps/s before{middle}, {after:.0f} after")
    for place, words, side in ((0.0, "fault", "left"), (gone_s, "gone", "right")):
        line = {"dash": "dot", "width": 1}
        figure.add_vline(x=place, line=line, annotation_text=words, annotation_position=f"top {side}")
    figure.update_yaxes(rangemode="tozero")
    finding = f"The client was gone {gone_s:.2f} s after its fault. {'; '.join(changes)}."
    return figure.update_layout(meta={"finding": finding})

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
        figure.add_scatter(
            x=own["at_s"],
            y=own["steps_per_s"],
            mode="lines+markers",
            name=name,
            line=look.line(),
            marker=look.mark(7),
            hovertemplate=f"{name}<br>%{{x:.2f}} s: %{{y:.0f}} steps/s<extra></extra>",
        )
        before, during, after = (
            own.loc[which, "steps_per_s"].mean()
            for which in (own["at_s"] < 0, own["at_s"].between(0, gone_s), own["at_s"] > gone_s)
        )
        middle = "" if math.isnan(during) else f", {during:.0f} until the client was gone"
        changes.append(f"{escape(own['job'].iloc[0])}: {before:.0f} steps/s before{middle}, {after:.0f} after")
    for at_s, words, side in ((0.0, "fault", "left"), (gone_s, "gone", "right")):
        figure.add_vline(
            x=at_s, line={"dash": "dot", "width": 1}, annotation_text=words, annotation_position=f"top {side}"
        )
    figure.update_yaxes(rangemode="tozero")
    finding = f"The client was gone {gone_s:.2f} s after its fault. {'; '.join(changes)}."
    return figure.update_layout(meta={"finding": finding})

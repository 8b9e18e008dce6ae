"""What changes of a program gained, beside what they could have gained at most."""

from __future__ import annotations

from html import escape

import pandas as pd
import plotly.graph_objects as go

from labkit.plots.theme import encoding


def figure_gains(gains: pd.DataFrame, *, template: str = "labkit_light") -> go.Figure:
    """A bar a change, and a mark for its bound where there is one.

    Args:
        gains: columns change, measured (times as fast), at_most (the bound; NaN where none was stated), in order.
        template: "labkit_light" or "labkit_dark".
    """
    bar, mark = encoding(0, template), encoding(1, template)
    figure = go.Figure(layout={"template": template})
    figure.add_bar(
        x=gains["change"],
        y=gains["measured"],
        name="gain · measured",
        marker={"color": bar.color},
        hovertemplate="%{x}: %{y:.3g} times as fast<extra></extra>",
    )
    figure.add_scatter(
        x=gains["change"],
        y=gains["at_most"],
        name="at most · predicted",
        mode="markers",
        marker={"color": mark.color, "symbol": mark.marker, "size": 13, "line": {"color": "white", "width": 1}},
        hovertemplate="%{x}: at most %{y:.3g} times as fast<extra></extra>",
    )
    figure.add_hline(y=1, line={"dash": "dot", "width": 1})
    figure.update_xaxes(title_text="What was changed, one after the other")
    figure.update_yaxes(title_text="Times as fast as before it", rangemode="tozero")
    best = gains.loc[gains["measured"].idxmax()]
    finding = (
        f"{escape(str(best['change']))} gained most: {best['measured']:.3g} times as fast; all together "
        f"{gains['measured'].prod():.3g} times."
    )
    figure.update_layout(meta={"finding": finding})
    return figure

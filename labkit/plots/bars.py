"""Bars beside each other: what budgets leave of a device, what utilisation hides, what changes gained."""

from __future__ import annotations

from html import escape
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from labkit.plots.theme import encoding, new_figure, series

PATTERNS = {"arithmetic": ("", "/"), "bandwidth": (".", "x")}
"""Of a budget's bars: as found, and predicted"""
BUSY = {
    "cpu_percent": "utilisation: time in which the core ran",
    "share_of_peak": "arithmetic, of the best of one core",
    "share_of_bandwidth": "bytes used, of the best of one core",
}


def figure_budget_shares(shares: pd.DataFrame) -> go.Figure:
    """Bars of each budget: arithmetic and bandwidth, each as found, and predicted where something predicts it.

    Args:
        shares: columns budget, quantity ("arithmetic" or "bandwidth"), share (%) and provenance.
    """
    found = shares[shares["provenance"] != "predicted"].pivot(index="budget", columns="quantity", values="share")
    words = "; ".join(
        f"{row.Index}: {row.arithmetic:.0f} % of the arithmetic and {row.bandwidth:.0f} % of the bandwidth"
        for row in found.reindex(shares["budget"].unique()).itertuples()
    )
    figure = new_figure("Budget", "Of the whole device (%)", f"Left by the budget: {words}.")
    for _, name, own in series(shares, "quantity", "provenance"):
        quantity, provenance = own[["quantity", "provenance"]].iloc[0]
        color = encoding(list(PATTERNS).index(quantity)).color
        pattern = {"shape": PATTERNS[quantity][provenance == "predicted"]}
        _add_bars(figure, own["budget"], own["share"], name, {"color": color, "pattern": pattern})
    return figure


def figure_busy(busy: pd.DataFrame) -> go.Figure:
    """Bars of each load: how busy the core was, and what it got done.

    Args:
        busy: columns load, cpu_percent, share_of_peak, share_of_bandwidth (all %), provenance.
    """
    words = ", ".join(
        f"{row.load} {row.share_of_peak:.3g} % of the arithmetic and {row.share_of_bandwidth:.3g} % of the bandwidth"
        for row in busy[busy["cpu_percent"] > 90].itertuples()
    )
    figure = new_figure("What one core does", "Share (%)", f"At more than 90 % utilisation: {words}.")
    return _add_columns(figure, busy["load"], busy, BUSY)


def figure_gains(gains: pd.DataFrame) -> go.Figure:
    """A bar a change, and a mark for its bound where there is one.

    Args:
        gains: columns change, measured (times as fast), at_most (the bound; NaN where none was stated), in order.
    """
    best, product = gains.loc[gains["measured"].idxmax()], gains["measured"].prod()
    gained = f"{escape(str(best['change']))} gained most: {best['measured']:.3g} times as fast"
    finding = f"{gained}; all together {product:.3g} times."
    figure = new_figure("What was changed, one after the other", "Times as fast as before it", finding)
    _add_bars(figure, gains["change"], gains["measured"], "gain · measured", {"color": encoding(0).color}, "times")
    mark = encoding(1).mark(13) | {"line": {"color": "white", "width": 1}}
    hover, name = "%{x}: at most %{y:.3g} times as fast<extra></extra>", "at most · predicted"
    bound = {"x": gains["change"], "y": gains["at_most"], "hovertemplate": hover}
    figure.add_scatter(**bound, name=name, mode="markers", marker=mark)
    return figure.add_hline(y=1, line={"dash": "dot", "width": 1})


def _add_columns(figure: go.Figure, ticks: list[str], frame: pd.DataFrame, titles: dict[str, str]) -> go.Figure:
    """A series a column of the frame."""
    for number, (column, title) in enumerate(titles.items()):
        look, name = encoding(number), escape(f"{title} · {frame['provenance'].iloc[0]}")
        _add_bars(figure, ticks, frame[column], name, {"color": look.color, "pattern": {"shape": look.pattern}})
    return figure


def _add_bars(figure: go.Figure, x: Any, y: pd.Series, name: str, look: dict[str, Any], unit: str = "%") -> None:
    hover = f"%{{x}}<br>{name}: %{{y:.3g}} {unit}<extra></extra>"
    figure.add_bar(x=x, y=y, name=name, marker=look, hovertemplate=hover)
    figure.update_layout(barmode="group").update_yaxes(rangemode="tozero")

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
    "cpu_percent": "utilisation of the core",
    "share_of_peak": "arithmetic, of a core's best",
    "share_of_bandwidth": "bytes used, of a core's best",
    "gpu_utilisation": "GPU utilisation",
    "sm_active": "SM activity",
    "sm_occupancy": "SM occupancy",
}
"""Of a load on a core, then of a kernel on a GPU: what utilisation says, and two counters that say more"""


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
    """Bars of each load on a core or kernel on a GPU: how busy the device was, and how much of it had work.

    Args:
        busy: columns load, provenance, and of BUSY those that are known (%; NaN where a load has none).
    """
    busy = busy.reset_index(drop=True).reindex(columns=["load", "provenance", *BUSY])
    says = ["cpu_percent", "gpu_utilisation"]
    said, work = busy[says].max(axis=1), busy[list(BUSY)].drop(columns=says).max(axis=1)
    least, most = (f"{work[row]:.3g} % ({busy['load'][row]})" for row in (work.idxmin(), work.idxmax()))
    finding = (
        f"Utilisation goes from {said.min():.3g} to {said.max():.3g} %, the larger of the two other bars from "
        f"{least} to {most}."
    )
    figure = new_figure("What runs", "Share (%)", finding, height=480)
    rows = busy.melt(["load", "provenance"], var_name="counter", value_name="share").dropna()
    for (counter, provenance), own in rows.groupby(["counter", "provenance"], sort=False):
        number, name = list(BUSY).index(counter) % 3, escape(f"{BUSY[counter]} · {provenance}")
        look = encoding(number, provenance=provenance).bar()
        _add_bars(figure, own["load"], own["share"], name, look, offsetgroup=str(number))
    return figure


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
    _add_marks(figure, gains["change"], gains["at_most"], "at most · predicted", 1)
    return figure.add_hline(y=1, line={"dash": "dot", "width": 1})


def figure_predicted_gains(gains: pd.DataFrame) -> go.Figure:
    """A bar a change, and a mark for what each model had predicted.

    Args:
        gains: a row a change; columns measured (times as fast), and one for each model.
    """
    models = [name for name in gains if name != "measured"]
    off = gains[models].div(gains["measured"], axis=0).sub(1).abs().max().sort_values()
    best, worst = (f"{escape(str(off.index[place]))} {off.iloc[place]:.0%}" for place in (0, -1))
    finding = f"Off at worst: {best}, {worst}."
    figure = new_figure("Changes, predicted before they were measured", "Times as fast as before it", finding)
    _add_bars(figure, gains.index, gains["measured"], "gain · measured", {"color": encoding(0).color}, "times")
    for number, name in enumerate(models, start=1):
        _add_marks(figure, gains.index, gains[name], f"{name} · predicted", number)
    return figure.add_hline(y=1, line={"dash": "dot", "width": 1})


def _add_marks(figure: go.Figure, x: Any, y: pd.Series, name: str, number: int) -> None:
    mark = encoding(number).mark(13) | {"line": {"color": "white", "width": 1}}
    hover = f"%{{x}}<br>{name}: %{{y:.3g}} times as fast<extra></extra>"
    figure.add_scatter(x=x, y=y, name=name, mode="markers", marker=mark, hovertemplate=hover)


def _add_bars(
    figure: go.Figure, x: Any, y: pd.Series, name: str, look: dict[str, Any], unit: str = "%", **trace: Any
) -> None:
    hover = f"%{{x}}<br>{name}: %{{y:.3g}} {unit}<extra></extra>"
    figure.add_bar(x=x, y=y, name=name, marker=look, hovertemplate=hover, **trace)
    figure.update_layout(barmode="group").update_yaxes(rangemode="tozero")

"""Utilisation beside the work that was done: bars of one core's loads, and a GPU kernel's counters by its shape."""

from __future__ import annotations

from html import escape

import pandas as pd
import plotly.graph_objects as go

from labkit.plots.theme import encoding

PATTERNS = ("", "/", "x", ".")
"""Beside colour, what tells bars apart."""
BUSY = {
    "cpu_percent": "utilisation: time in which the core ran",
    "share_of_peak": "arithmetic, of the best of one core",
    "share_of_bandwidth": "bytes used, of the best of one core",
}
COUNTERS = {"gpu_utilisation": "GPU utilisation", "sm_active": "SM activity", "sm_occupancy": "SM occupancy"}


def figure_busy(busy: pd.DataFrame, *, template: str = "labkit_light") -> go.Figure:
    """Bars of each load: how busy the core was, and what it got done.

    Args:
        busy: columns load, cpu_percent, share_of_peak, share_of_bandwidth (all %), provenance.
        template: "labkit_light" or "labkit_dark".
    """
    names = {column: f"{title} · {busy['provenance'].iloc[0]}" for column, title in BUSY.items()}
    figure = _bars(busy["load"].tolist(), busy, names, template)
    figure.update_layout(xaxis_title="What one core does", yaxis_title="Share (%)")
    full = busy[busy["cpu_percent"] > 90]
    words = ", ".join(
        f"{row.load} {_percent(row.share_of_peak)} of the arithmetic and {_percent(row.share_of_bandwidth)} of the "
        "bandwidth"
        for row in full.itertuples()
    )
    figure.update_layout(meta={"finding": f"At more than 90 % utilisation: {words}."})
    return figure


def figure_kernel_shapes(shapes: pd.DataFrame, *, template: str = "labkit_light") -> go.Figure:
    """Bars of three counters for each shape of a kernel.

    Args:
        shapes: columns blocks, threads, gpu_utilisation, sm_active, sm_occupancy (all %), provenance: of one source.
        template: "labkit_light" or "labkit_dark".
    """
    names = {column: f"{title} · {shapes['provenance'].iloc[0]}" for column, title in COUNTERS.items()}
    ticks = [f"{row.blocks:,} × {row.threads:,}" for row in shapes.itertuples()]
    figure = _bars(ticks, shapes, names, template)
    figure.update_layout(xaxis_title="Blocks × threads of the kernel", yaxis_title="Counter (%)")
    lowest = shapes.loc[shapes["sm_active"].idxmin()]
    finding = (
        f"With {lowest['blocks']:,} × {lowest['threads']:,} the utilisation is {lowest['gpu_utilisation']:.0f} %, and "
        f"{lowest['sm_active']:.1f} % of the multiprocessors have work."
    )
    figure.update_layout(meta={"finding": finding})
    return figure


def _percent(value: float) -> str:
    return f"{value:.0f} %" if value >= 10 else f"{value:.2g} %"


def _bars(ticks: list[str], frame: pd.DataFrame, names: dict[str, str], template: str) -> go.Figure:
    figure = go.Figure(layout={"template": template, "barmode": "group"})
    for number, (column, name) in enumerate(names.items()):
        figure.add_bar(
            x=ticks,
            y=frame[column],
            name=escape(name),
            marker={"color": encoding(number, template).color, "pattern": {"shape": PATTERNS[number]}},
            hovertemplate=f"%{{x}}<br>{escape(name)}: %{{y:.3g}} %<extra></extra>",
        )
    figure.update_yaxes(rangemode="tozero")
    return figure

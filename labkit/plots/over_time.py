"""Curves over time: of a run as it goes on, and of what an allocator held over the recorded steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from labkit.plots.descriptions import thinned
from labkit.plots.theme import encoding, new_figure
from labkit.plots.words import number_text

Curve = tuple[Sequence[float], Sequence[float]]
"""(x in seconds, y)"""
MOST_POINTS = 4000


def figure_live_run(
    panels: Mapping[str, Curve], *, provenance: str, target: float | None = None, template: str = "labkit_light"
) -> go.Figure:
    """One panel a quantity, two beside each other.

    Args:
        panels: by title, seconds and values; a title ends with its unit in brackets where it has one. The first is the
            watched metric.
        target: drawn as a line in the first panel.
    """
    rows = -(-len(panels) // 2)
    titles = [title.partition(" (")[0] for title in panels]
    # between two rows: the upper one's axis title and the lower one's heading
    figure = make_subplots(rows, 2, subplot_titles=titles, vertical_spacing=0.39 / rows, horizontal_spacing=0.14)
    for number, (title, (x, y)) in enumerate(panels.items()):
        place, look = {"row": number // 2 + 1, "col": number % 2 + 1}, encoding(number, template)
        figure.add_scatter(x=list(x), y=list(y), name=f"{title} · {provenance}", **look.curve(5), **place)
        unit = title.rpartition(" (")[2].rstrip(")")
        figure.update_xaxes(title_text="Time (s)", **place)
        figure.update_yaxes(title_text=unit, rangemode="tozero" if number else "normal", **place)
    if target is not None:
        figure.add_hline(y=target, line={"dash": "dot"}, annotation={"text": f"target {target:g}"}, row=1, col=1)
    margin, finding = {"t": 40, "b": 50}, {"finding": latest_values(panels)}
    return figure.update_layout(
        template=template, height=90 + 230 * rows, showlegend=False, margin=margin, meta=finding
    )


def latest_values(panels: Mapping[str, Curve]) -> str:
    """The newest value of each panel, in a sentence."""
    last = [f"{title}: {number_text(y[-1])}" for title, (_, y) in panels.items() if len(y)]
    return f"Latest values: {'; '.join(last)}." if last else "No value yet."


def figure_memory_held(
    held: pd.DataFrame, *, provenance: str = "measured", template: str = "labkit_light"
) -> go.Figure:
    """Bytes held over time, a line a device.

    Args:
        held: columns time_us, device (−1: the host), held_bytes (`labkit.profiling.memory_over_time`).
    """
    figure = new_figure("Time since the recording began (ms)", "Allocated since then (MiB)", template=template)
    peaks = []
    for number, (device, own) in enumerate(held.groupby("device")):
        name = "host" if device < 0 else f"GPU {device}"
        own = pd.DataFrame({"ms": own["time_us"] / 1e3, "mib": own["held_bytes"] / 2**20})
        top = own.loc[[own["mib"].idxmax()]]
        shown = pd.concat([thinned(own, MOST_POINTS), top]).sort_values("ms", kind="stable").drop_duplicates()
        figure.add_scatter(
            x=shown["ms"],
            y=shown["mib"],
            name=f"{name} · {provenance}",
            hovertemplate="%{x:.2f} ms: %{y:.3g} MiB<extra></extra>",
            **encoding(number, template).curve() | {"mode": "lines"},
        )
        peaks.append(f"{name} holds most, {top['mib'].item():.3g} MiB, after {top['ms'].item():.3g} ms")
    figure.update_traces(line_shape="hv")
    return figure.update_layout(meta={"finding": f"{'; '.join(peaks)}." if peaks else None})

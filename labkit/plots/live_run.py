"""A run as it goes on: metric, loss, throughput, and what the machine does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from labkit.plots.theme import encoding
from labkit.plots.words import number_text

Curve = tuple[Sequence[float], Sequence[float]]
"""(x in seconds, y)"""


def figure_live_run(
    panels: Mapping[str, Curve], *, provenance: str, target: float | None = None, template: str = "labkit_light"
) -> go.Figure:
    """One panel a quantity, two beside each other.

    Args:
        panels: by title, seconds and values; a title ends with its unit in brackets where it has one. The first is the
            watched metric.
        provenance: where the numbers come from.
        target: drawn as a line in the first panel.
        template: "labkit_light" or "labkit_dark".
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

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
    height = 90 + 230 * rows
    # between two rows: the upper one's axis title and the lower one's heading
    between = 90 / (height - 90) if rows > 1 else 0
    figure = make_subplots(rows=rows, cols=2, subplot_titles=titles, vertical_spacing=between, horizontal_spacing=0.14)
    figure.update_layout(template=template, height=height, showlegend=False, margin={"t": 40, "b": 50})
    for number, (title, (x, y)) in enumerate(panels.items()):
        row, column = number // 2 + 1, number % 2 + 1
        look = encoding(number, template)
        figure.add_scatter(
            x=list(x),
            y=list(y),
            name=f"{title} · {provenance}",
            mode="lines+markers",
            line=look.line(),
            marker=look.mark(5),
            row=row,
            col=column,
        )
        figure.update_xaxes(title_text="Time (s)", row=row, col=column)
        unit = title.rpartition(" (")[2].rstrip(")")
        figure.update_yaxes(title_text=unit, rangemode="tozero" if number else "normal", row=row, col=column)
    if target is not None:
        figure.add_hline(y=target, line={"dash": "dot"}, annotation={"text": f"target {target:g}"}, row=1, col=1)
    figure.update_layout(meta={"finding": latest_values(panels)})
    return figure


def latest_values(panels: Mapping[str, Curve]) -> str:
    """The newest value of each panel, in a sentence."""
    last = [f"{title}: {number_text(y[-1])}" for title, (_, y) in panels.items() if len(y)]
    return f"Latest values: {'; '.join(last)}." if last else "No value yet."

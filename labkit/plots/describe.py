"""A figure in words, for screen readers and for whoever cannot see the difference."""

from __future__ import annotations

from html import unescape

import numpy as np
import pandas as pd
import plotly.graph_objects as go

_TYPES = {
    "scatter": "Line chart",
    "bar": "Bar chart",
    "heatmap": "Heat map",
    "box": "Box plot",
    "histogram": "Histogram",
}


def describe(fig: go.Figure) -> str:
    """Chart type, axes with their ranges, series, and the main finding, in a few sentences.

    Args:
        fig: any figure. `layout.meta["finding"]`, where the figure function set it, is the last sentence;
            elsewhere each series' first and last value stand in.

    >>> print(describe(go.Figure(go.Bar(x=["a", "b"], y=[1, 3], name="time"))))
    Bar chart. Horizontal axis from a to b. Vertical axis from 1 to 3. 1 series: time. time goes from 1 to 3.
    """
    # traces with hoverinfo "skip" are decoration of a series: bands, marks
    data = [trace for trace in fig.data if trace.hoverinfo != "skip"]
    kind = _TYPES.get(data[0].type, f"{data[0].type.capitalize()} chart") if data else "Empty chart"
    names: dict[str, int] = {}
    for trace in data:
        name = unescape(trace.name or "unnamed")
        names[name] = names.get(name, 0) + 1
    listed = [name if count == 1 else f"{name} ({count} curves)" for name, count in names.items()]
    bands = {unescape(trace.name) for trace in fig.select_traces({"fill": "toself"}) if trace.name}
    sentences = [
        kind,
        _axis("Horizontal axis", fig.layout.xaxis, [trace.x for trace in data]),
        _axis("Vertical axis", fig.layout.yaxis, [trace.y for trace in data]),
        f"{len(listed)} series: {', '.join(listed)}",
        *([f"Shaded: {'; '.join(sorted(bands))}"] if bands else []),
    ]
    finding = (fig.layout.meta or {}).get("finding") or _ends(data)
    return ". ".join(sentences) + (f". {finding}" if finding else ".")


def _axis(name: str, axis: go.layout.XAxis | go.layout.YAxis, columns: list) -> str:
    values = [value for column in columns if column is not None for value in column if not pd.isna(value)]
    title = f": {unescape(axis.title.text)}," if axis.title.text else ""
    if axis.range:
        low, high = (10**end for end in axis.range) if axis.type == "log" else axis.range
    elif values and all(isinstance(value, (int, float, np.number)) for value in values):
        low, high = np.nanmin(values), np.nanmax(values)
    elif values:
        low, high = values[0], values[-1]
    else:
        return f"{name}{title} without values"
    scale = ", logarithmic" if axis.type == "log" else ""
    return f"{name}{title} from {_number(low)} to {_number(high)}{scale}"


def _number(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, (int, float, np.number)) else str(value)


def _ends(data: list) -> str:
    parts = [
        f"{unescape(trace.name or 'unnamed')} goes from {_number(trace.y[0])} to {_number(trace.y[-1])}"
        for trace in data
        if getattr(trace, "y", None) is not None and len(trace.y)
    ]
    return "; ".join(parts) + "." if parts else ""

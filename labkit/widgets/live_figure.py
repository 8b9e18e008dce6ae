"""The empty figure that a view fills."""

from __future__ import annotations

import plotly.graph_objects as go

from labkit.quick_nbformat import import_nbformat


def live_figure() -> go.FigureWidget:
    """A figure whose changes reach the browser at once."""
    import_nbformat()  # before plotly does
    return go.FigureWidget()

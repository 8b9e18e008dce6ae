"""Shows a figure in a notebook, with its description in words beneath it."""

from __future__ import annotations

import textwrap

import plotly.graph_objects as go

from labkit.plots.describe import describe

# plotly's toolbar has a button that uploads the chart to a server: nothing leaves the reader's machine from here.
OFFLINE = {"plotlyServerURL": "", "modeBarButtonsToRemove": ["sendChartToCloud"], "displaylogo": False}


def show(figure: go.Figure) -> None:
    """Show the figure, then print what it shows, for whoever cannot see it."""
    figure.show(config=OFFLINE)
    print(textwrap.fill(describe(figure), 88, break_on_hyphens=False))

"""Shows a figure in a notebook, with its description beneath it."""

from __future__ import annotations

import plotly.graph_objects as go

from labkit.plots.describe import describe
from labkit.quick_nbformat import import_nbformat

# plotly's toolbar has a button that uploads the chart to a server: nothing leaves the reader's machine from here.
OFFLINE = {
    "plotlyServerURL": "",
    "modeBarButtonsToRemove": ["sendChartToCloud", "select2d", "lasso2d", "autoScale2d"],
    "displaylogo": False,
}
MIME = "application/vnd.plotly.v1+json"
"""The type of a figure in a notebook."""


def show(figure: go.Figure) -> None:
    """Show the figure, then what it shows in words and as a table, for whoever cannot see it."""
    from IPython.display import display

    import_nbformat()
    figure.show(config=OFFLINE)
    display(describe(figure))

"""Shows a figure in a notebook, in the reader's theme and with its description, or a table with three figures."""

from __future__ import annotations

import json
from html import escape
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from labkit.plots.descriptions import describe
from labkit.plots.theme import BACKGROUNDS, FONT, INK
from labkit.quick_nbformat import import_nbformat

if TYPE_CHECKING:
    import pandas as pd

# plotly's toolbar has a button that uploads the chart to a server: nothing leaves the reader's machine from here.
OFFLINE = {
    "plotlyServerURL": "",
    "modeBarButtonsToRemove": ["sendChartToCloud", "select2d", "lasso2d", "autoScale2d"],
    "displaylogo": False,
    "responsive": True,
}
MIME = "application/vnd.plotly.v1+json"
"""The type of a figure in a notebook."""


IN_THE_DARK = """
<style>
body[data-jp-theme-light="false"] .js-plotly-plot .plotly { filter: invert(0.93) hue-rotate(180deg); }
</style>"""
"""In a dark JupyterLab a figure is dark: lightness turned round, hues as they are."""
LABEL = """
<script>
(() => {
  const beside = document.currentScript?.closest(".jp-OutputArea-child")?.previousElementSibling;
  const figure = beside?.querySelector(".jp-OutputArea-output");
  figure?.setAttribute("role", "figure");
  figure?.setAttribute("aria-label", %s);
})();
</script>"""
"""Gives the figure before this output its accessible name, which plotly's drawings have none of."""


def show(what: go.Figure | pd.DataFrame) -> None:
    """Show a figure, and behind a heading what it shows in words and as a table; or a table, with three figures."""
    from IPython.display import HTML, display

    if not isinstance(what, go.Figure):
        display(HTML(what.to_html(float_format=three_figures, na_rep="–", border=0)))
        return
    import_nbformat()
    provenance_once(what).show(config=OFFLINE)
    description = describe(what)
    label = LABEL % json.dumps(description.text).replace("</", "<\\/")
    display({"text/plain": str(description), "text/html": IN_THE_DARK + description.html() + label}, raw=True)


def page_of(figure: go.Figure, title: str) -> str:
    """A figure as a page that works offline, with what it shows in words and as a table; dark where its reader is."""
    plot = provenance_once(figure).to_html(full_html=False, include_plotlyjs=True, config=dict(OFFLINE))
    return f"""<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>{escape(title)}</title>
<style>
body {{ font-family: {FONT}; background: {BACKGROUNDS["labkit_light"]}; color: {INK["labkit_light"]}; }}
@media (prefers-color-scheme: dark) {{
  body {{ background: {BACKGROUNDS["labkit_dark"]}; color: {INK["labkit_dark"]}; }}
  .js-plotly-plot .plotly {{ filter: invert(0.93) hue-rotate(180deg); }}
}}
</style></head>
<body>
<main><h1>{escape(title)}</h1>
<div role="figure" aria-label="{escape(describe(figure).text)}">{plot}</div>
{describe(figure).html()}</main>
</body>
</html>
"""


def three_figures(value: float) -> str:
    """A number of a table.

    >>> [three_figures(value) for value in (0.0123456, 81.25, 12345.0, 3.0)]
    ['0.0123', '81.2', '12,300', '3']
    """
    return f"{float(f'{value:.3g}'):,.0f}" if 1e3 <= abs(value) < 1e9 else f"{value:.3g}"


def provenance_once(figure: go.Figure) -> go.Figure:
    """The figure, where all of its series say that they come from the same, with the legend's title saying it once.

    >>> drawn = go.Figure([go.Bar(name="one-core · measured"), go.Bar(name="all-cores · measured")])
    >>> shown = provenance_once(drawn)
    >>> [trace.name for trace in shown.data], shown.layout.legend.title.text
    (['one-core', 'all-cores'], 'measured: ')
    """
    names = [trace.name for trace in figure.data if trace.name and trace.showlegend is not False]
    kind = names[0].rpartition(" · ")[2] if names else ""
    if len(names) < 2 or not all(name.endswith(f" · {kind}") for name in names):
        return figure
    shown = go.Figure(figure)
    shown.for_each_trace(lambda trace: trace.update(name=(trace.name or "").removesuffix(f" · {kind}") or None))
    return shown.update_layout(legend_title={"text": f"{kind}: ", "side": "left"})

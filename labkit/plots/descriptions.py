"""Figures as text and as a table, for screen readers and readers who see no colours; and how a notebook shows them."""

import contextlib
import json
import sys
import textwrap
from collections import Counter
from dataclasses import dataclass
from html import escape, unescape
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from labkit.plots.number_texts import value_text
from labkit.plots.theme import BACKGROUNDS, FONT, INK

TYPES = {"scatter": "Line chart", "bar": "Bar chart", "heatmap": "Heat map"}
SHOWN_ROWS = 12
"""Rows of each series that the table in a notebook shows; `Description.table` has all."""


@dataclass(frozen=True)
class Description:
    """A figure's description, which a notebook shows folded."""

    text: str
    """Chart type, axes with their ranges, series, and the main finding, in a few sentences."""
    table: pd.DataFrame
    """The points: columns series, one named after each axis, and text where it is drawn. Of a heat map: each
    column's mean, least and greatest."""

    def __str__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/plain": textwrap.fill(self.text, 88, break_on_hyphens=False), "text/html": self.html()}

    def html(self) -> str:
        """The words and the table, each series thinned to SHOWN_ROWS rows, behind a heading that opens them."""
        words = f'<p class="description">{escape(self.text)}</p>'
        if self.table.empty:
            return f"<details><summary>The figure as text</summary>{words}</details>"
        shown = pd.concat(thinned(rows, SHOWN_ROWS) for _, rows in self.table.groupby("series", sort=False))
        of = f"{len(shown)} of {len(self.table)} rows" if len(shown) < len(self.table) else f"{len(shown)} rows"
        rows = shown.to_html(index=False, float_format="{:.4g}".format, na_rep="", border=0)
        return f"<details><summary>The figure as text and as a table ({of})</summary>{words}{rows}</details>"


def describe(fig: go.Figure) -> Description:
    """Describe a figure as text and as a table.

    Args:
        fig: any figure. `layout.meta["finding"]`, where the figure function set it, is the last sentence;
            elsewhere each series' first and last value stand in.

    >>> description = describe(go.Figure(go.Bar(x=["a", "b"], y=[1, 3], name="time")))
    >>> print(description)
    Bar chart. Horizontal axis from a to b. Vertical axis from 1 to 3. 1 series: time. time goes from 1 to 3.
    >>> description.table.to_dict("list")
    {'series': ['time', 'time'], 'x': ['a', 'b'], 'y': [1, 3]}
    """
    return Description(description_text(fig), _table(fig))


def description_text(fig: go.Figure) -> str:
    """`describe(fig).text` alone, for a view that changes twice per second."""
    data = _series(fig)
    kind = TYPES.get(data[0].type, f"{data[0].type.capitalize()} chart") if data else "Empty chart"
    panels = {(trace.xaxis or "x", trace.yaxis or "y"): [] for trace in data} or {("x", "y"): []}
    names: Counter[str] = Counter()
    for trace in data:
        panels[trace.xaxis or "x", trace.yaxis or "y"].append(trace)
        names[_name(trace)] += (trace.meta or {}).get("curves", 1)
    sentences = [kind if len(panels) == 1 else f"{kind} in {len(panels)} panels"]
    for number, ((x, y), traces) in enumerate(panels.items(), start=1):
        sentences += [f"Panel {number}"] * (len(panels) > 1)
        sentences.append(_axis(f"Horizontal axis: {_title(fig, x)},", _layout(fig, x), [trace.x for trace in traces]))
        sentences.append(_axis(f"Vertical axis: {_title(fig, y)},", _layout(fig, y), [trace.y for trace in traces]))
    listed = [name if count == 1 else f"{name} ({count} curves)" for name, count in names.items()]
    sentences.append(f"{len(listed)} series: {', '.join(listed)}")
    if bands := {unescape(trace.name) for trace in fig.select_traces({"fill": "toself"}) if trace.name}:
        sentences.append(f"Shaded: {'; '.join(sorted(bands))}")
    ends = [
        f"{_name(trace)} goes from {value_text(trace.y[0])} to {value_text(trace.y[-1])}"
        for trace in data
        if trace.y is not None and len(trace.y)
    ]
    finding = (fig.layout.meta or {}).get("finding") or "; ".join(ends) + "." * bool(ends)
    return ". ".join([*sentences, finding]).strip()


Rows = TypeVar("Rows", pd.DataFrame, pd.Series)


def thinned(rows: Rows, most: int) -> Rows:
    """At most that many of the rows, first and last among them, at even distances."""
    return rows.iloc[np.linspace(0, len(rows) - 1, most).round().astype(int)] if len(rows) > most else rows


def _series(fig: go.Figure) -> list:
    """All traces except those with hoverinfo "skip", which decorate a series: bands, marks."""
    return [trace for trace in fig.data if trace.hoverinfo != "skip"]


def _layout(fig: go.Figure, axis: str) -> Any:
    """Layout of the axis that traces call x2."""
    return fig.layout[f"{axis[0]}axis{axis[1:]}"]


def _title(fig: go.Figure, axis: str) -> str:
    """Title of an axis; panels that share one have it at the last panel."""
    own = _layout(fig, axis)
    return unescape(own.title.text or (_layout(fig, own.matches).title.text if own.matches else None) or "")


def _table(fig: go.Figure) -> pd.DataFrame:
    parts, counts = [pd.DataFrame(columns=["series"])], Counter()
    for trace in _series(fig):
        name = _name(trace)
        counts[name] += 1
        name += f" ({counts[name]})" * (counts[name] > 1)
        x, y = (_title(fig, axis or own) or own for axis, own in ((trace.xaxis, "x"), (trace.yaxis, "y")))
        if trace.type == "heatmap" and trace.z is not None:
            z = pd.DataFrame(trace.z).agg(["mean", "min", "max"]).T  # (y, x)
            at = z.index if trace.x is None else trace.x
            parts.append(pd.DataFrame({"series": name, x: at}).join(z.reset_index(drop=True)))
        elif trace.y is not None:
            at = np.arange(len(trace.y)) if trace.x is None else trace.x
            frame = pd.DataFrame({"series": name, x: list(at), y: list(trace.y)})
            if trace.type == "scatter" and "text" in (trace.mode or "") and trace.text is not None:
                frame["text"] = [unescape(str(each)) for each in np.broadcast_to(trace.text, len(frame))]
            if (trace.meta or {}).get("curves", 1) > 1:
                is_gap = frame[[x, y]].isna().all(axis=1)
                frame["series"] += is_gap.cumsum().map(lambda curve: f" ({curve + 1})" if curve else "")
                frame = frame[~is_gap]
            parts.append(frame)
    return pd.concat(parts[1:] or parts, ignore_index=True)


def _name(trace: Any) -> str:
    return unescape(trace.name or "unnamed")


def _axis(name: str, axis: go.layout.XAxis | go.layout.YAxis, columns: list) -> str:
    values = [value for column in columns if column is not None for value in column if not pd.isna(value)]
    name = name.removesuffix(": ,")
    if axis.range:
        low, high = (10**end for end in axis.range) if axis.type == "log" else axis.range
    elif values:
        are_numbers = all(isinstance(value, (int, float, np.number)) for value in values)
        low, high = (min(values), max(values)) if are_numbers else (values[0], values[-1])
    else:
        return f"{name} without values"
    return f"{name} from {value_text(low)} to {value_text(high)}{', logarithmic' * (axis.type == 'log')}"


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
  const before = document.currentScript?.closest(".jp-OutputArea-child")?.previousElementSibling;
  const figure = before?.querySelector(".jp-OutputArea-output");
  figure?.setAttribute("role", "figure");
  figure?.setAttribute("aria-label", %s);
})();
</script>"""
"""Gives the figure before this output an accessible name, which plotly does not"""


_GRAMMAR = "rfc3987_syntax"
"""Package that jsonschema, which nbformat imports, uses if it is installed. Importing it compiles a grammar of
international web addresses, which takes two seconds of a core; notebooks do not need it."""


def import_nbformat() -> None:
    """Import nbformat, which plotly needs in a notebook, without that grammar, if it is there and not yet imported."""
    if "jsonschema" in sys.modules or _GRAMMAR in sys.modules:
        return
    sys.modules[_GRAMMAR] = None  # ty: ignore[invalid-assignment]  # None makes its import fail
    try:
        with contextlib.suppress(ImportError):
            import nbformat  # noqa: F401
    finally:
        del sys.modules[_GRAMMAR]


def show(what: go.Figure | pd.DataFrame) -> None:
    """Show a figure with a foldable description, or a table with three significant digits."""
    from IPython.display import HTML, display

    if not isinstance(what, go.Figure):
        display(HTML(_html_of(what)))
        return
    import_nbformat()
    legend_below_title(provenance_once(what)).show(config=OFFLINE)
    description = describe(what)
    label = LABEL % json.dumps(description.text).replace("</", "<\\/")
    display({"text/plain": str(description), "text/html": IN_THE_DARK + description.html() + label}, raw=True)


def _html_of(frame: pd.DataFrame) -> str:
    """A table as HTML: texts stand on the left, a bare count of rows is left out, and a wide table scrolls."""

    def shown(value: object) -> object:
        return three_figures(value) if isinstance(value, float) else value

    if not isinstance(frame.index, pd.RangeIndex) or frame.index.name is not None:
        names = ["" if name is None else name for name in frame.index.names]
        frame = frame.reset_index(names=names, allow_duplicates=True)
    frame = frame.set_axis(frame.columns.set_names([None] * frame.columns.nlevels), axis="columns")
    texts = [place for place, kind in enumerate(frame.dtypes) if not pd.api.types.is_numeric_dtype(kind)]
    styled = frame.style.format(shown, na_rep="–", escape="html")
    styled.cell_ids = False
    styled.format_index(shown, axis="columns", escape="html").hide(axis="index")
    styled.set_table_styles([{"selector": f".col{place}", "props": "text-align: left"} for place in texts])
    return f'<div style="overflow-x: auto">{styled.to_html()}</div>'


def page_of(figure: go.Figure, title: str) -> str:
    """A figure with its description as a page that works offline, dark where the reader's theme is."""
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


def legend_below_title(figure: go.Figure) -> go.Figure:
    """The figure; if it has a title, that stands above it at the left, and the legend below, where both have room."""
    if not (title := figure.layout.title.text):
        return figure
    height = figure.layout.height or 450
    above = {"text": title, "x": 0, "xref": "container", "pad": {"l": 12}, "y": 0.98, "yanchor": "top"}
    shown = go.Figure(figure).update_layout(title={**above, "yref": "container", "font": {"size": 15}})
    return shown.update_layout(legend={"y": -70 / (height - 104), "yanchor": "top"})  # 104: both margins


def provenance_once(figure: go.Figure) -> go.Figure:
    """The figure; where all of its series have the same provenance, the legend's title says it instead of each name.

    >>> from labkit.plots.theme import named
    >>> drawn = go.Figure([go.Bar(**named("one-core", "measured")), go.Bar(**named("all-cores", "measured"))])
    >>> shown = provenance_once(drawn)
    >>> [trace.name for trace in shown.data], shown.layout.legend.title.text
    (['one-core', 'all-cores'], 'measured: ')
    """
    listed = [trace for trace in figure.data if trace.name and trace.showlegend is not False]
    kinds = {(trace.meta or {}).get("provenance") for trace in listed}
    if len(listed) < 2 or len(kinds) > 1 or None in kinds:
        return figure
    (kind,) = kinds
    end = escape(f" · {kind}")
    shown = go.Figure(figure)
    shown.for_each_trace(lambda trace: trace.update(name=(trace.name or "").removesuffix(end) or None))
    return shown.update_layout(legend_title={"text": escape(f"{kind}: "), "side": "left"})

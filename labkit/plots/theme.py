"""One look for every figure: Okabe–Ito colours that reach 3:1, and a second encoding as well as colour."""

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import plotly.io as pio

# Okabe and Ito (2008), "Color Universal Design"; of their eight, those that reach 3:1 on the background.
PALETTES = {
    "labkit_light": ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000"),
    "labkit_dark": ("#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#F0E442"),
}
BACKGROUNDS = {"labkit_light": "#ffffff", "labkit_dark": "#16191f"}
INK = {"labkit_light": "#1b1f24", "labkit_dark": "#e7eaee"}
_GRID = {"labkit_light": "#e8eaed", "labkit_dark": "#2b3038"}
AXIS = {"labkit_light": "#8a9099", "labkit_dark": "#7d8590"}
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
_MARKERS = ("circle", "square", "diamond", "triangle-up", "cross", "x")
_PATTERNS = ("", "/", "x", ".", "\\", "+", "-", "|")
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"


@dataclass(frozen=True)
class Encoding:
    """How one series is drawn: never by colour alone."""

    color: str
    dash: str
    marker: str
    pattern: str
    provenance: str = "measured"

    @property
    def hollow(self) -> bool:
        """Whether marks are open and bars are lines on the background: of what was recorded elsewhere."""
        return self.provenance.startswith("recorded")

    @property
    def meta(self) -> dict[str, str]:
        """Meta of a trace, for code that reads the figure."""
        return {"provenance": self.provenance}

    def curve(self, size: float = 6, width: float = 2) -> dict[str, Any]:
        """A line with marks."""
        line = {"color": self.color, "dash": self.dash, "width": width}
        return {"mode": "lines+markers", "line": line, "marker": self.mark(size)}

    def mark(self, size: float = 6) -> dict[str, Any]:
        hollow = {"line": {"width": 2}} if self.hollow else {}
        return {"color": self.color, "symbol": self.marker + "-open" * self.hollow, "size": size, **hollow}

    def bar(self) -> dict[str, Any]:
        plain = {
            "color": self.color,
            "pattern": {"shape": self.pattern, "fillmode": "overlay", "size": 6, "solidity": 0.15},
            "line": {"color": "rgba(255,255,255,0.6)", "width": 0.5},
        }
        recorded = {
            "pattern": {"shape": self.pattern or "-", "fillmode": "replace", "size": 6, "solidity": 0.35},
            "line": {"color": self.color, "width": 1.5},
        }
        return plain | recorded if self.hollow else plain


def encoding(index: int, provenance: str = "measured") -> Encoding:
    """The look of series `index`: thirty that differ in colour, or in dash and marker; hollow of what was recorded."""
    colors = PALETTES["labkit_light"]
    step = (index % len(colors) + index // len(colors)) % len(DASHES)
    look = colors[index % len(colors)], DASHES[step], _MARKERS[step], _PATTERNS[index % len(_PATTERNS)]
    return Encoding(*look, provenance)


def named(label: str, provenance: str) -> dict[str, Any]:
    """Name and meta of a trace that a legend shows, safe inside plotly's small HTML."""
    return {"name": escape(f"{label} · {provenance}"), "meta": {"provenance": provenance}}


def series(frame: pd.DataFrame, *by: str) -> Iterator[tuple[Encoding, str, pd.DataFrame]]:
    """Look, name and rows of each series: rows that agree in these columns, in the order in which they come.

    The name has the columns' values but for empty ones, safe inside plotly's small HTML: "all-cores · measured".
    """
    groups: Any = frame.groupby(list(by), sort=False, dropna=False)
    for number, (key, own) in enumerate(groups):
        provenance = str(own["provenance"].iloc[0]) if "provenance" in by else "measured"
        yield encoding(number, provenance), escape(" · ".join(filter(None, map(str, key)))), own


def new_figure(x: str, y: str, finding: str = "", **layout: Any) -> go.Figure:
    """A figure without series.

    Args:
        x: the horizontal axis' title, with its unit.
        y: the vertical axis' title, with its unit.
        finding: what the figure shows, in a sentence (`labkit.plots.describe`).
        layout: more of plotly's layout.
    """
    figure = go.Figure(layout={"template": "labkit_light", "showlegend": True, "meta": {"finding": finding}, **layout})
    return figure.update_xaxes(title_text=x).update_yaxes(title_text=y)


def add_band(
    figure: go.Figure, x: tuple[pd.Series, pd.Series], y: tuple[pd.Series, pd.Series], look: Encoding, **trace: Any
) -> None:
    """Shade the area between two lines, given by x and y, as decoration of a series."""
    figure.add_scatter(
        x=[*x[0], *x[1][::-1]],
        y=[*y[0], *y[1][::-1]],
        fill="toself",
        fillcolor=faint(look.color),
        line={"width": 0},
        mode="lines",
        hoverinfo="skip",
        showlegend=False,
        **trace,
    )


def log_ticks(low: float = 1e-6, high: float = 1e9) -> dict[str, list]:
    """Ticks of a logarithmic axis: plain numbers, three per power of ten, or ten where the axis spans less than one."""
    digits = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8) if high < 8 * low else (1, 2, 5)
    ticks = [digit * 10.0**power for power in range(-6, 9) for digit in digits]
    return {"tickvals": ticks, "ticktext": [f"{tick:g}" if tick < 1e4 else f"{tick:,.0f}" for tick in ticks]}


def faint(color: str) -> str:
    """`color` (#rrggbb) as a transparent fill."""
    red, green, blue = (int(color[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.16)"


def in_the_dark() -> dict[str, str]:
    """The dark theme's colour for each colour of the light one."""
    light, dark = (PALETTES[name] for name in PALETTES)
    return {
        **dict(zip(light, dark, strict=True)),
        **{faint(one): faint(other) for one, other in zip(light, dark, strict=True)},
        **{colors["labkit_light"]: colors["labkit_dark"] for colors in (BACKGROUNDS, INK, AXIS, _GRID)},
    }


def _template(name: str) -> go.layout.Template:
    ink = {"family": FONT, "color": INK[name]}
    axis = {
        "gridcolor": _GRID[name], "linecolor": AXIS[name], "tickcolor": AXIS[name], "showline": True,
        "ticks": "outside", "ticklen": 4, "zeroline": False, "title": {"standoff": 10}, "automargin": True,
    }  # fmt: skip
    return go.layout.Template(
        layout={
            "colorway": list(PALETTES[name]),
            "paper_bgcolor": BACKGROUNDS[name],
            "plot_bgcolor": BACKGROUNDS[name],
            "font": {**ink, "size": 13},
            "xaxis": axis,
            "yaxis": axis,
            "modebar": {"orientation": "v"},  # next to the plot, not over the legend
            "legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom"},
            "margin": {"l": 60, "r": 64, "t": 48, "b": 56},
            "hoverlabel": {"bgcolor": BACKGROUNDS[name], "bordercolor": AXIS[name], "font": ink},
            "hovermode": "closest",
            "shapedefaults": {"line": {"color": INK[name]}},
        }
    )


for _name in PALETTES:
    pio.templates[_name] = _template(_name)

"""What is compared: cells of a sweep, slowdowns under observers and next to neighbours, and speeds of a machine."""

from dataclasses import replace
from html import escape

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from labkit import UserError
from labkit.plots.number_texts import column_title, count_text, number_text, value_text
from labkit.plots.theme import DASHES, encoding, log_ticks, named, new_figure, series

LOG_FROM = 20.0
"""Ratio of the largest value to the least from which an axis is logarithmic"""


def figure_sweep(frame: pd.DataFrame, x: str, y: str, color: str | None = None) -> go.Figure:
    """Results of each value of a setting: the median over all else as a line, and each cell as a point.

    Args:
        frame: `labkit.launch.read_sweep`; cells without this y are left out.
        x: a column; one without numbers is an axis of categories.
        y: a column of numbers.
        color: a column whose values are a series each; None draws one.

    Returns:
        A figure with a series a value of color and provenance. An axis is logarithmic where its values are above zero
        and span more than LOG_FROM times the least.

    Raises:
        UserError: there is no such column, or no number in it.
    """
    for name in filter(None, (x, y, color)):
        if name not in frame:
            raise UserError(f"{name!r} is no column of this sweep: choose one of {', '.join(map(str, frame.columns))}.")
    values = pd.to_numeric(frame[y], errors="coerce")
    known = frame.assign(**{y: values})[np.isfinite(values.astype(float)) & frame[x].notna()]
    if known.empty:
        raise UserError(f"no cell of this sweep has a {y} and a {x} yet: let it run, or choose another column.")
    is_number = pd.api.types.is_numeric_dtype(known[x])
    known = known.assign(**{x: known[x] if is_number else known[x].astype(str)})
    if color and pd.api.types.is_float_dtype(known[color]) and (known[color] % 1 == 0).all():
        known[color] = known[color].astype(int)  # cells without it had made it floats
    by = [*([color] if color else []), "provenance"]
    figure = new_figure(escape(column_title(x)), escape(column_title(y)), _extremes(known, x, y, by))
    values, kinds = (list(dict.fromkeys(known[name])) for name in (color or "provenance", "provenance"))
    names_value = color is not None and pd.api.types.is_numeric_dtype(known[color])
    for number, (look, name, own) in enumerate(series(known, *by)):
        title = f"{escape(color)} {name}" if names_value else name if color else f"{escape(column_title(y))} · {name}"
        if color and len(kinds) > 1:  # a value keeps its colour and mark, and a dash says where its numbers come from
            provenance = own["provenance"].iloc[0]
            look = encoding(values.index(own[color].iloc[0]), provenance)
            look = replace(look, dash=DASHES[kinds.index(provenance)])
        middle = own.groupby(x, sort=is_number)[y].agg(["median", "size"])
        if (middle["size"] > 1).any():
            points = look.mark(5) | {"opacity": 0.45}
            figure.add_scatter(
                x=own[x], y=own[y], mode="markers", marker=points, hoverinfo="skip", showlegend=False,
                legendgroup=str(number),
            )  # fmt: skip
        figure.add_scatter(
            x=middle.index,
            y=middle["median"],
            name=title,
            meta=look.meta,
            text=[f"median of {size}" if size > 1 else "one cell" for size in middle["size"]],
            hovertemplate=f"%{{x}}: %{{y:.4~g}}, %{{text}}<extra>{title}</extra>",
            legendgroup=str(number),
            **look.curve(8),
        )
    if is_number:
        figure.update_xaxes(**_scale(known[x]))
    else:
        figure.update_xaxes(type="category", categoryorder="array", categoryarray=list(dict.fromkeys(known[x])))
    return figure.update_yaxes(**_scale(known[y]))


def _scale(values: pd.Series) -> dict:
    low, high = float(values.min()), float(values.max())
    return {"type": "log", **log_ticks(low, high)} if low > 0 and high > LOG_FROM * low else {}


def _extremes(known: pd.DataFrame, x: str, y: str, by: list[str]) -> str:
    """Where the median is greatest and least."""
    medians = known.groupby([*by, x], sort=False, dropna=False)[y].median()
    words = []
    for which, place in (("greatest", medians.idxmax()), ("least", medians.idxmin())):
        *own, at = place
        settings = [f"{name} {value_text(value)}" for name, value in zip([*by[:-1], x], [*own[:-1], at], strict=True)]
        words.append(f"{which} at {', '.join(settings)}: {number_text(medians[place])}")
    return f"{column_title(y)}, median of each place, is {'; '.join(words if len(medians) > 1 else words[:1])}."


def error_bars(value: pd.Series, low: pd.Series, high: pd.Series) -> dict:
    """Plotly's error bars from the ends of an interval."""
    return {"type": "data", "symmetric": False, "array": high - value, "arrayminus": value - low, "thickness": 1.2}


INTENSITIES = np.logspace(-2, 4, 121)
"""Operations per byte, from one addition of long vectors to a product of large matrices."""


def figure_roofline(roofs: pd.DataFrame, marks: pd.DataFrame | None = None) -> go.Figure:
    """One roof per machine (Williams et al., CACM 2009), and what workloads achieve on it, on logarithmic axes.

    Args:
        roofs: columns name, provenance ("measured", "predicted", …), peak_gflops, bandwidth_gb_per_s.
        marks: columns name, provenance, flop_per_byte, gflops; None draws none.
    """
    finding = "; ".join(
        f"{roof.name} becomes limited by arithmetic at {roof.peak_gflops / roof.bandwidth_gb_per_s:.3g} operations "
        f"per byte, with at most {count_text(roof.peak_gflops)} GFLOP/s"
        for roof in roofs.itertuples()
    )
    title = "Arithmetic intensity (operations per byte)"
    figure = new_figure(title, "Attainable (GFLOP/s)", f"{finding}.")

    def add(row, x, y, mode: str, most: str = "") -> None:
        trace = named(row.name, row.provenance)
        hover = f"{trace['name']}<br>%{{x:.3g}} operations per byte<br>{most}%{{y:,.3g}} GFLOP/s<extra></extra>"
        look = encoding(len(figure.data)).curve(11) | {"mode": mode}
        figure.add_scatter(x=x, y=y, **trace, hovertemplate=hover, **look)

    for roof in roofs.itertuples():
        best = np.minimum(roof.peak_gflops, INTENSITIES * roof.bandwidth_gb_per_s)
        add(roof, INTENSITIES, best, "lines", "at most ")
    for mark in () if marks is None else marks.itertuples():
        add(mark, [mark.flop_per_byte], [mark.gflops], "markers")
    return figure.update_xaxes(type="log").update_yaxes(type="log")

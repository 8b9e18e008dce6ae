"""A sweep: what came of each value of a setting, its repeats and seeds apart, and their median."""

from __future__ import annotations

from dataclasses import replace
from html import escape

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from labkit.errors import UserError
from labkit.plots.theme import DASHES, encoding, log_ticks, new_figure, series
from labkit.plots.words import column_title, number_text

LOG_FROM = 20.0
"""An axis is logarithmic where its largest value is so many times its least"""


def figure_sweep(
    frame: pd.DataFrame, x: str, y: str, color: str | None = None, *, template: str = "labkit_light"
) -> go.Figure:
    """What came of each value of a setting: the median over all else as a line, and each cell as a point.

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
        known[color] = known[color].astype(int)  # cells that leave it out had made it floats
    by = [*([color] if color else []), "provenance"]
    figure = new_figure(escape(column_title(x)), escape(column_title(y)), _finding(known, x, y, by), template=template)
    values, kinds = (list(dict.fromkeys(known[name])) for name in (color or "provenance", "provenance"))
    names_value = color is not None and pd.api.types.is_numeric_dtype(known[color])
    for number, (look, name, own) in enumerate(series(known, *by, template=template)):
        named = f"{escape(color)} {name}" if names_value else name if color else f"{escape(column_title(y))} · {name}"
        if color and len(kinds) > 1:  # a value keeps its colour and mark, and a dash says where its numbers come from
            provenance = own["provenance"].iloc[0]
            look = encoding(values.index(own[color].iloc[0]), template, provenance)
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
            name=named,
            text=[f"median of {size}" if size > 1 else "one cell" for size in middle["size"]],
            hovertemplate=f"%{{x}}: %{{y:.4~g}}, %{{text}}<extra>{named}</extra>",
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


def _finding(known: pd.DataFrame, x: str, y: str, by: list[str]) -> str:
    """Where the median is greatest and least."""
    medians = known.groupby([*by, x], sort=False, dropna=False)[y].median()
    words = []
    for which, place in (("greatest", medians.idxmax()), ("least", medians.idxmin())):
        *own, at = place
        told = [f"{name} {_text(value)}" for name, value in zip([*by[:-1], x], [*own[:-1], at], strict=True)]
        words.append(f"{which} at {', '.join(told)}: {number_text(medians[place])}")
    return f"{column_title(y)}, median of each place, is {'; '.join(words if len(medians) > 1 else words[:1])}."


def _text(value: object) -> str:
    return number_text(value) if isinstance(value, (int, float, np.number)) else str(value)

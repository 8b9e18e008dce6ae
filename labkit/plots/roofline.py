"""Rooflines: the most arithmetic a machine can do, by how much it does with each byte (Williams et al., CACM 2009)."""

from __future__ import annotations

from html import escape

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from labkit.plots.theme import encoding, new_figure
from labkit.plots.words import count_text

INTENSITIES = np.logspace(-2, 4, 121)
"""Operations a byte, from one addition of long vectors to a product of large matrices."""


def attainable_gflops(intensity: np.ndarray | float, peak_gflops: float, bandwidth_gb_per_s: float) -> np.ndarray:
    """The roofline: min(peak, intensity · bandwidth), in billions of operations a second.

    >>> float(attainable_gflops(2.0, 100.0, 10.0)), float(attainable_gflops(50.0, 100.0, 10.0))
    (20.0, 100.0)
    """
    return np.minimum(peak_gflops, np.asarray(intensity) * bandwidth_gb_per_s)


def figure_roofline(
    roofs: pd.DataFrame, marks: pd.DataFrame | None = None, *, template: str = "labkit_light"
) -> go.Figure:
    """One roof a machine, and marks for what workloads do with it, on logarithmic axes.

    Args:
        roofs: columns name, provenance ("measured", "predicted", …), peak_gflops, bandwidth_gb_per_s.
        marks: columns name, provenance, flop_per_byte, gflops; None draws none.
        template: "labkit_light" or "labkit_dark".
    """
    finding = "; ".join(
        f"{roof.name} becomes limited by arithmetic at {roof.peak_gflops / roof.bandwidth_gb_per_s:.3g} operations a "
        f"byte, with at most {count_text(roof.peak_gflops)} GFLOP/s"
        for roof in roofs.itertuples()
    )
    title = "Arithmetic intensity (operations a byte)"
    figure = new_figure(title, "Attainable (GFLOP/s)", f"{finding}.", template=template)

    def add(row, x, y, mode: str, most: str = "") -> None:
        name = f"{escape(row.name)} · {row.provenance}"
        hover = f"{name}<br>%{{x:.3g}} operations a byte<br>{most}%{{y:,.3g}} GFLOP/s<extra></extra>"
        look = encoding(len(figure.data), template).curve(11) | {"mode": mode}
        figure.add_scatter(x=x, y=y, name=name, hovertemplate=hover, **look)

    for roof in roofs.itertuples():
        best = attainable_gflops(INTENSITIES, roof.peak_gflops, roof.bandwidth_gb_per_s)
        add(roof, INTENSITIES, best, "lines", "at most ")
    for mark in () if marks is None else marks.itertuples():
        add(mark, [mark.flop_per_byte], [mark.gflops], "markers")
    return figure.update_xaxes(type="log").update_yaxes(type="log")

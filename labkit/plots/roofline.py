"""Rooflines: the most arithmetic a machine can do, by how much it does with each byte (Williams et al., CACM 2009)."""

from __future__ import annotations

from html import escape

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from labkit.plots.theme import encoding
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
    """One roof a machine, and marks for what workloads do with it.

    Args:
        roofs: columns name, provenance ("measured", "predicted", …), peak_gflops, bandwidth_gb_per_s.
        marks: columns name, provenance, flop_per_byte, gflops; None draws none.
        template: "labkit_light" or "labkit_dark".

    Returns:
        A figure with logarithmic axes.
    """
    figure = go.Figure(layout={"template": template})
    for number, roof in enumerate(roofs.itertuples()):
        look = encoding(number, template)
        name = f"{escape(roof.name)} · {roof.provenance}"
        figure.add_scatter(
            x=INTENSITIES,
            y=attainable_gflops(INTENSITIES, roof.peak_gflops, roof.bandwidth_gb_per_s),
            name=name,
            mode="lines",
            line={"color": look.color, "dash": look.dash, "width": 2.5},
            hovertemplate=f"{name}<br>%{{x:.3g}} operations a byte<br>at most %{{y:,.3g}} GFLOP/s<extra></extra>",
        )
    for number, mark in enumerate(() if marks is None else marks.itertuples(), len(roofs)):
        look = encoding(number, template)
        name = f"{escape(mark.name)} · {mark.provenance}"
        figure.add_scatter(
            x=[mark.flop_per_byte],
            y=[mark.gflops],
            name=name,
            mode="markers",
            marker={"color": look.color, "symbol": look.marker, "size": 11},
            hovertemplate=f"{name}<br>%{{x:.3g}} operations a byte<br>%{{y:,.3g}} GFLOP/s<extra></extra>",
        )
    figure.update_xaxes(title_text="Arithmetic intensity (operations a byte)", type="log")
    figure.update_yaxes(title_text="Attainable (GFLOP/s)", type="log")
    figure.update_layout(meta={"finding": _finding(roofs)})
    return figure


def _finding(roofs: pd.DataFrame) -> str:
    ridges = [
        f"{roof.name} becomes limited by arithmetic at {roof.peak_gflops / roof.bandwidth_gb_per_s:.3g} operations a "
        f"byte, with at most {count_text(roof.peak_gflops)} GFLOP/s"
        for roof in roofs.itertuples()
    ]
    return "; ".join(ridges) + "."

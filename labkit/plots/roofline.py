"""What a machine can do: rooflines (Williams et al., CACM 2009), and the speed of a copy by its size."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from labkit.plots.number_texts import count_text
from labkit.plots.theme import AXIS, encoding, named, new_figure

INTENSITIES = np.logspace(-2, 4, 121)
"""Operations per byte, from one addition of long vectors to a product of large matrices."""


def attainable_gflops(intensity: np.ndarray | float, peak_gflops: float, bandwidth_gb_per_s: float) -> np.ndarray:
    """The roofline: min(peak, intensity · bandwidth), in billions of operations per second.

    >>> float(attainable_gflops(2.0, 100.0, 10.0)), float(attainable_gflops(50.0, 100.0, 10.0))
    (20.0, 100.0)
    """
    return np.minimum(peak_gflops, np.asarray(intensity) * bandwidth_gb_per_s)


def figure_roofline(roofs: pd.DataFrame, marks: pd.DataFrame | None = None) -> go.Figure:
    """One roof per machine, and marks for what workloads achieve on it, on logarithmic axes.

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
        best = attainable_gflops(INTENSITIES, roof.peak_gflops, roof.bandwidth_gb_per_s)
        add(roof, INTENSITIES, best, "lines", "at most ")
    for mark in () if marks is None else marks.itertuples():
        add(mark, [mark.flop_per_byte], [mark.gflops], "markers")
    return figure.update_xaxes(type="log").update_yaxes(type="log")


def figure_cache_curve(curve: pd.DataFrame, caches: dict[str, int] | None = None) -> go.Figure:
    """How fast bytes move, by how many there are; sizes on a logarithmic axis.

    Args:
        curve: columns size_bytes, gb_per_s (`labkit.hardware.calibration.cache_curve`).
        caches: bytes of each cache by its name, drawn as vertical lines; None draws none.
    """
    fastest, largest, kib = curve.loc[curve["gb_per_s"].idxmax()], curve.iloc[-1], curve["size_bytes"] / 2**10
    finding = (
        f"The fastest copy, {fastest.gb_per_s:.3g} GB/s, is of {fastest.size_bytes / 2**10:,.0f} KiB; "
        f"the largest, of {largest.size_bytes / 2**20:,.0f} MiB, moves at {largest.gb_per_s:.3g} GB/s."
    )
    figure = new_figure("Read and written together (KiB)", "Speed of the copy (GB/s)", finding)
    hover = "%{x:,.0f} KiB: %{y:.3g} GB/s<extra></extra>"
    trace = named("copy", "measured")
    figure.add_scatter(x=kib, y=curve["gb_per_s"], **trace, hovertemplate=hover, **encoding(0).curve())
    for cache, size_bytes in (caches or {}).items():
        line = {"color": AXIS["labkit_light"], "dash": "dot"}
        figure.add_vline(x=size_bytes / 2**10, line=line, annotation={"text": cache})
    return figure.update_xaxes(type="log").update_yaxes(rangemode="tozero")

"""Copy speed by size: the steps are the caches."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from labkit.plots.theme import AXIS, encoding, new_figure


def figure_cache_curve(
    curve: pd.DataFrame, caches: dict[str, int] | None = None, *, provenance: str = "measured"
) -> go.Figure:
    """How fast bytes move, by how many there are; sizes on a logarithmic axis.

    Args:
        curve: columns size_bytes, gb_per_s (`labkit.hardware.calibration.cache_curve`).
        caches: bytes of each cache by its name, drawn as vertical lines; None draws none.
        provenance: where the numbers come from.
    """
    fastest, largest, kib = curve.loc[curve["gb_per_s"].idxmax()], curve.iloc[-1], curve["size_bytes"] / 2**10
    finding = (
        f"The fastest copy, {fastest.gb_per_s:.3g} GB/s, is of {fastest.size_bytes / 2**10:,.0f} KiB; "
        f"the largest, of {largest.size_bytes / 2**20:,.0f} MiB, moves at {largest.gb_per_s:.3g} GB/s."
    )
    figure = new_figure("Read and written together (KiB)", "Speed of the copy (GB/s)", finding)
    hover = "%{x:,.0f} KiB: %{y:.3g} GB/s<extra></extra>"
    name = f"copy · {provenance}"
    figure.add_scatter(x=kib, y=curve["gb_per_s"], name=name, hovertemplate=hover, **encoding(0).curve())
    for cache, size_bytes in (caches or {}).items():
        line = {"color": AXIS["labkit_light"], "dash": "dot"}
        figure.add_vline(x=size_bytes / 2**10, line=line, annotation={"text": cache})
    return figure.update_xaxes(type="log").update_yaxes(rangemode="tozero")

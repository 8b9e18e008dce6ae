"""Copy speed by size: the steps are the caches."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from labkit.plots.theme import AXIS, encoding


def figure_cache_curve(
    curve: pd.DataFrame,
    caches: dict[str, int] | None = None,
    *,
    provenance: str = "measured",
    template: str = "labkit_light",
) -> go.Figure:
    """How fast bytes move, by how many there are.

    Args:
        curve: columns size_bytes, gb_per_s (`labkit.hardware.calibration.cache_curve`).
        caches: bytes of each cache by its name, drawn as vertical lines; None draws none.
        provenance: where the numbers come from.
        template: "labkit_light" or "labkit_dark".

    Returns:
        A figure with a logarithmic horizontal axis.
    """
    look = encoding(0, template)
    figure = go.Figure(layout={"template": template})
    figure.add_scatter(
        x=curve["size_bytes"] / 2**10,
        y=curve["gb_per_s"],
        name=f"copy · {provenance}",
        mode="lines+markers",
        line={"color": look.color, "dash": look.dash},
        marker={"color": look.color, "symbol": look.marker},
        hovertemplate="%{x:,.0f} KiB: %{y:.3g} GB/s<extra></extra>",
    )
    for name, size_bytes in (caches or {}).items():
        figure.add_vline(x=size_bytes / 2**10, line={"color": AXIS[template], "dash": "dot"}, annotation={"text": name})
    figure.update_xaxes(title_text="Read and written together (KiB)", type="log")
    figure.update_yaxes(title_text="Speed of the copy (GB/s)", rangemode="tozero")
    fastest, largest = curve.loc[curve["gb_per_s"].idxmax()], curve.iloc[-1]
    figure.update_layout(
        showlegend=True,
        meta={
            "finding": f"The fastest copy, {fastest.gb_per_s:.3g} GB/s, is of {fastest.size_bytes / 2**10:,.0f} KiB; "
            f"the largest, of {largest.size_bytes / 2**20:,.0f} MiB, moves at {largest.gb_per_s:.3g} GB/s."
        },
    )
    return figure

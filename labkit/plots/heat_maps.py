"""Heat maps of a GPU's counters over the shapes of a kernel."""

from __future__ import annotations

from html import escape

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from labkit.plots.theme import encoding

COUNTERS = {
    "gpu_utilisation": "GPU utilisation",
    "graphics_active": "GRACT",
    "sm_active": "SM activity",
    "sm_occupancy": "SM occupancy",
}
SCALE = ((0.0, "#f2f7fb"), (0.5, "#9cc9e6"), (1.0, "#00436b"))
"""One hue from light to dark, for which no colour vision is needed"""


def figure_kernel_shapes(shapes: pd.DataFrame) -> go.Figure:
    """A heat map a counter: blocks upwards, threads a block to the right; the number stands in each cell.

    Cells of what was recorded elsewhere stand apart, those of what was measured touch.

    Args:
        shapes: columns blocks, threads, those of COUNTERS (all %), provenance: of one source.
    """
    provenance = escape(shapes["provenance"].iloc[0])
    apart = 4 * encoding(0, provenance=provenance).hollow
    figure = make_subplots(2, 2, subplot_titles=list(COUNTERS.values()), horizontal_spacing=0.18, vertical_spacing=0.13)
    for place, (counter, title) in enumerate(COUNTERS.items()):
        z = shapes.pivot(index="blocks", columns="threads", values=counter)  # (blocks, threads)
        trace = go.Heatmap(
            x=[f"{threads:,}" for threads in z.columns],
            y=[f"{blocks:,}" for blocks in z.index],
            z=z.to_numpy(),
            name=f"{title} · {provenance}",
            coloraxis="coloraxis",
            xgap=apart,
            ygap=apart,
            texttemplate="%{z:.3~g}",
            hovertemplate=f"%{{y}} blocks of %{{x}} threads<br>{title}: %{{z:.1f}} %<extra>{provenance}</extra>",
        )
        figure.add_trace(trace, 1 + place // 2, 1 + place % 2)
    figure.update_xaxes(title_text="Threads a block", type="category").update_yaxes(
        title_text="Blocks", type="category"
    )
    least = shapes.loc[shapes["sm_active"].where(shapes["gpu_utilisation"] >= 100).idxmin()]
    finding = (
        f"At 100 % utilisation SM activity is as low as {least['sm_active']:.3g} % "
        f"({least['blocks']:,} blocks of {least['threads']:,} threads); "
        f"the utilisation is never below {shapes['gpu_utilisation'].min():.0f} %."
    )
    bar = {"title": f"%,<br>{provenance.partition(',')[0]}", "thickness": 12}
    color = {"cmin": 0, "cmax": 100, "colorscale": SCALE, "colorbar": bar}
    title = {"text": f"{provenance}", "font": {"size": 13}}
    layout = {"template": "labkit_light", "height": 860, "title": title, "meta": {"finding": finding}}
    return figure.update_layout(**layout, coloraxis=color)

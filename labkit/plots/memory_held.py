"""What an allocator held over the recorded steps."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from labkit.plots.describe import thinned
from labkit.plots.theme import encoding, new_figure

MOST_POINTS = 4000


def figure_memory_held(
    held: pd.DataFrame, *, provenance: str = "measured", template: str = "labkit_light"
) -> go.Figure:
    """Bytes held over time, a line a device.

    Args:
        held: columns time_us, device (−1: the host), held_bytes (`labkit.profiling.traces.memory.memory_over_time`).
        provenance: where the numbers come from.
        template: "labkit_light" or "labkit_dark".
    """
    figure = new_figure("Time since the recording began (ms)", "Allocated since then (MiB)", template=template)
    peaks = []
    for number, (device, own) in enumerate(held.groupby("device")):
        name = "host" if device < 0 else f"GPU {device}"
        look = encoding(number, template)
        top = own.loc[own["held_bytes"].idxmax()]
        shown = pd.concat([thinned(own, MOST_POINTS), top.to_frame().T]).sort_values("time_us").drop_duplicates()
        figure.add_scatter(
            x=shown["time_us"].astype(float) / 1e3,
            y=shown["held_bytes"].astype(float) / 2**20,
            name=f"{name} · {provenance}",
            mode="lines",
            line={**look.line(), "shape": "hv"},
            hovertemplate="%{x:.2f} ms: %{y:.3g} MiB<extra></extra>",
        )
        peaks.append(f"{name} holds most, {top['held_bytes'] / 2**20:.3g} MiB, after {top['time_us'] / 1e3:.3g} ms")
    return figure.update_layout(meta={"finding": f"{'; '.join(peaks)}." if peaks else None})

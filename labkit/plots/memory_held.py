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
        own = pd.DataFrame({"ms": own["time_us"] / 1e3, "mib": own["held_bytes"] / 2**20})
        top = own.loc[[own["mib"].idxmax()]]
        shown = pd.concat([thinned(own, MOST_POINTS), top]).sort_values("ms", kind="stable").drop_duplicates()
        figure.add_scatter(
            x=shown["ms"],
            y=shown["mib"],
            name=f"{name} · {provenance}",
            hovertemplate="%{x:.2f} ms: %{y:.3g} MiB<extra></extra>",
            **encoding(number, template).curve() | {"mode": "lines"},
        )
        peaks.append(f"{name} holds most, {top['mib'].item():.3g} MiB, after {top['ms'].item():.3g} ms")
    figure.update_traces(line_shape="hv")
    return figure.update_layout(meta={"finding": f"{'; '.join(peaks)}." if peaks else None})

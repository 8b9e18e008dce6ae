"""Figures of lab 70: how a gain depends on the scale, and what a server does under an open loop."""

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from labkit.plots import encoding, log_ticks, named, new_figure


def figure_gain_over_scale(a: float, b: float, c: float, processes: float, seen: tuple[int, float]) -> go.Figure:
    """The gain of a compiled pass over a function a group, its compilation included: a n / (c + b n).

    Args:
        a, b: seconds per trip of the function and of the compiled pass.
        c: seconds of the compilation.
        processes: the gain of processes alone, as it was measured.
        seen: number of trips, and the gain that was measured there.
    """
    trips = np.logspace(2, 7, 101)
    tenfold = 10 * c / (a - 10 * b)
    finding = f"Compilation gains ten times from {tenfold:,.0f} trips on; processes alone {processes:.2f} times."
    figure = new_figure("Trips", "Times as fast as the function", finding)
    lines = {"compiled, compilation included": a * trips / (c + b * trips), "two processes": np.full(101, processes)}
    for number, (name, gain) in enumerate(lines.items()):
        look = encoding(number, "predicted")
        line = {"color": look.color, "dash": "dash"}
        figure.add_scatter(x=trips, y=gain, mode="lines", line=line, **named(name, "predicted"))
    mark = encoding(2).mark(11)
    figure.add_scatter(x=seen[:1], y=seen[1:], mode="markers", marker=mark, **named("compiled", "measured"))
    figure.add_hline(y=10, line={"dash": "dot", "width": 1})
    return figure.update_xaxes(type="log", dtick=1).update_yaxes(type="log", dtick=1)


def figure_knee(loads: pd.DataFrame) -> go.Figure:
    """Median latency over the planned rate for each way to serve; beyond the knee it grows with the length of the test.

    Args:
        loads: columns way, planned_per_s, answered_per_s, p50_ms.
    """
    most = loads.groupby("way", sort=False)["answered_per_s"].max()
    said = ", ".join(f"{way} {rate:,.0f}" for way, rate in most.items())
    figure = new_figure("Planned requests per second", "Median latency (ms)", f"Answered per second at most: {said}.")
    for number, (way, own) in enumerate(loads.groupby("way", sort=False)):
        look = encoding(number)
        figure.add_scatter(
            x=own["planned_per_s"],
            y=own["p50_ms"],
            mode="lines+markers",
            line={"color": look.color},
            marker=look.mark(9),
            **named(str(way), "measured"),
            customdata=own["answered_per_s"],
            hovertemplate="%{x:,.0f}/s planned, %{customdata:,.0f}/s answered: %{y:.3g} ms<extra></extra>",
        )
    return figure.update_xaxes(type="log", **log_ticks()).update_yaxes(type="log", **log_ticks())

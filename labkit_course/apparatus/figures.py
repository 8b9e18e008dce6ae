"""Figures that only labs draw: bars of what budgets leave and changes gain, hit rates, and heat maps of a kernel."""

import math
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from labkit.hardware import BudgetCheck
from labkit.plots import AXIS, ONE_HUE, encoding, error_bars, log_ticks, named, new_figure, series
from labkit_course.apparatus.busy import COUNTERS

WALKED = ("T1", "T2", "T3", "T4", "T5", "kernel", "collective", "compute")
"""Kinds of bars of a walk, each with a look of its own"""
PATTERNS = {"arithmetic": ("", "/"), "bandwidth": (".", "x")}
"""Of a budget's bars: as found, and predicted"""
BUSY = {
    "cpu_percent": "utilisation of the core",
    "share_of_peak": "arithmetic, of a core's best",
    "share_of_bandwidth": "bytes used, of a core's best",
} | {name: COUNTERS[name] for name in ("gpu_utilisation", "sm_active", "sm_occupancy")}
"""Of a load on a core, then of a kernel on a GPU: what utilisation says, and two counters that say more"""


def budget_shares(checks: Sequence[BudgetCheck]) -> pd.DataFrame:
    """Measured and predicted shares: columns budget, quantity (arithmetic, bandwidth), share (%) and provenance."""
    rows = [
        (check.name, quantity, 100 * share, provenance)
        for check in checks
        for quantity in ("arithmetic", "bandwidth")
        for provenance, field in ((check.provenance, quantity), ("predicted", f"predicted_{quantity}"))
        if (share := getattr(check, field)) is not None  # what cannot be predicted has no row
    ]
    return pd.DataFrame(rows, columns=["budget", "quantity", "share", "provenance"])


def figure_budget_shares(shares: pd.DataFrame) -> go.Figure:
    """Bars of each budget: arithmetic and bandwidth, each as found, and predicted where something predicts it.

    Args:
        shares: columns budget, quantity ("arithmetic" or "bandwidth"), share (%) and provenance.
    """
    found = shares[shares["provenance"] != "predicted"].pivot(index="budget", columns="quantity", values="share")
    words = "; ".join(
        f"{row.Index}: {row.arithmetic:.0f} % of the arithmetic and {row.bandwidth:.0f} % of the bandwidth"
        for row in found.reindex(shares["budget"].unique()).itertuples()
    )
    figure = new_figure("Budget", "Of the whole device (%)", f"Left by the budget: {words}.")
    for _, name, own in series(shares, "quantity", "provenance"):
        quantity, provenance = own[["quantity", "provenance"]].iloc[0]
        color = encoding(list(PATTERNS).index(quantity)).color
        pattern = {"shape": PATTERNS[quantity][provenance == "predicted"]}
        trace = {"name": name, "meta": {"provenance": provenance}}
        _add_bars(figure, own["budget"], own["share"], trace, {"color": color, "pattern": pattern})
    return figure


def figure_busy(busy: pd.DataFrame) -> go.Figure:
    """Bars of each load on a core or kernel on a GPU: how busy the device was, and how much of it had work.

    Args:
        busy: columns load, provenance, and of BUSY those that are known (%; NaN where a load has none).
    """
    busy = busy.reset_index(drop=True).reindex(columns=["load", "provenance", *BUSY])
    says = ["cpu_percent", "gpu_utilisation"]
    said, work = busy[says].max(axis=1), busy[list(BUSY)].drop(columns=says).max(axis=1)
    least, most = (f"{work[row]:.3g} % ({busy['load'][row]})" for row in (work.idxmin(), work.idxmax()))
    finding = (
        f"Utilisation goes from {said.min():.3g} to {said.max():.3g} %, the larger of the two other bars from "
        f"{least} to {most}."
    )
    figure = new_figure("What runs", "Share (%)", finding, height=480)
    rows = busy.melt(["load", "provenance"], var_name="counter", value_name="share").dropna()
    for (counter, provenance), own in rows.groupby(["counter", "provenance"], sort=False):
        number, trace = list(BUSY).index(counter) % 3, named(BUSY[counter], provenance)
        look = encoding(number, provenance).bar()
        _add_bars(figure, own["load"], own["share"], trace | {"offsetgroup": str(number)}, look)
    return figure


def figure_gains(gains: pd.DataFrame) -> go.Figure:
    """A bar a change, and a mark for each prediction of what it gains.

    Args:
        gains: columns change, measured (times as fast), and predictions: at_most (a bound; NaN where none was stated)
            for changes that build on each other, or a column for each model.
    """
    predicted, measured = gains.drop(columns=["change", "measured"]), gains["measured"]
    if "at_most" in predicted:
        best = f"{escape(str(gains['change'][measured.idxmax()]))} gained most: {measured.max():.3g} times as fast"
        finding = f"{best}; all together {measured.prod():.3g} times."
    else:
        off = predicted.div(measured, axis=0).sub(1).abs().max().sort_values()
        finding = f"Off at worst: {', '.join(f'{escape(str(name))} {miss:.0%}' for name, miss in off.items())}."
    figure = new_figure("What was changed", "Times as fast as before it", finding)
    _add_bars(figure, gains["change"], measured, named("gain", "measured"), {"color": encoding(0).color}, "times")
    for number, name in enumerate(predicted, start=1):
        mark = encoding(number).mark(13) | {"line": {"color": "white", "width": 1}}
        trace = named(name.replace("_", " "), "predicted")
        hover = f"%{{x}}<br>{trace['name']}: %{{y:.3g}} times as fast<extra></extra>"
        figure.add_scatter(x=gains["change"], y=gains[name], **trace, mode="markers", marker=mark, hovertemplate=hover)
    return figure.add_hline(y=1, line={"dash": "dot", "width": 1})


def figure_walks(walks: dict[str, pd.DataFrame]) -> go.Figure:
    """The host and the streams of one step along time, a group of lanes for each walk, on one axis.

    Args:
        walks: by provenance ("recorded", "predicted"), columns lane, kind, start_us, duration_us (`walk_timeline`).
    """
    lanes = [f"{lane}, {how}" for how, own in walks.items() for lane in own["lane"].unique()]
    ends_ms = {how: (own["start_us"] + own["duration_us"]).max() / 1e3 for how, own in walks.items()}
    first, *_, last = ends_ms.values()
    finding = f"Without these overheads {last:.1f} of {first:.1f} ms are left, {last / first:.0%}."
    figure = new_figure("Time since the step began (ms)", "Host or stream", finding)
    parts = pd.concat([own.assign(lane=own["lane"] + f", {how}", how=how) for how, own in walks.items()])
    for kind in sorted(parts["kind"].unique(), key=WALKED.index):
        for how, own in parts[parts["kind"] == kind].groupby("how", sort=False):
            figure.add_bar(
                base=(own["start_us"].round(1) / 1e3).to_numpy(),
                x=own["duration_us"].round(1) / 1e3,
                y=own["lane"],
                orientation="h",
                **named(kind, str(how)),
                marker=encoding(WALKED.index(kind)).bar() | {"line": {"width": 0}},
                hovertemplate=f"{kind}: %{{base:.3f}} to %{{x:.3f}} ms<extra></extra>",
            )
    figure.update_yaxes(type="category", categoryorder="array", categoryarray=lanes[::-1])
    return figure.update_layout(barmode="overlay", bargap=0.1, height=190 + 32 * len(lanes))


def _add_bars(
    figure: go.Figure, x: Any, y: pd.Series, trace: dict[str, Any], look: dict[str, Any], unit: str = "%"
) -> None:
    hover = f"%{{x}}<br>{trace['name']}: %{{y:.3g}} {unit}<extra></extra>"
    figure.add_bar(x=x, y=y, **trace, marker=look, hovertemplate=hover)
    figure.update_layout(barmode="group").update_yaxes(rangemode="tozero")


def figure_shares(shares: pd.DataFrame, finding: str) -> go.Figure:
    """A row per place: the measured share as a mark with its interval, and what was predicted.

    Args:
        shares: columns share, low, high and predicted, indexed by the place.
        finding: what the figure shows, which is its title.
    """
    figure = new_figure("Share of the throughput without moving (logarithmic)", "Rows are in", finding)
    for number, (name, provenance) in enumerate((("share", "measured"), ("predicted", "predicted"))):
        figure.add_scatter(
            x=shares[name],
            y=shares.index,
            mode="markers",
            marker=encoding(number, provenance).mark(11),
            error_x=error_bars(shares["share"], shares["low"], shares["high"]) if provenance == "measured" else None,
            hovertemplate=f"%{{y}}: %{{x:.3~g}}<extra>{provenance}</extra>",
            **named("share of the throughput", provenance),
        )
    figure.update_layout(title={"text": finding}).update_xaxes(log_ticks(), type="log")
    return figure.update_yaxes(autorange="reversed")


def figure_kernel_shapes(shapes: pd.DataFrame) -> go.Figure:
    """A heat map a counter: blocks upwards, threads a block to the right; the number stands in each cell.

    Cells of what was recorded elsewhere stand apart, those of what was measured touch.

    Args:
        shapes: columns blocks, threads, those of COUNTERS (all %), provenance: of one source.
    """
    provenance = shapes["provenance"].iloc[0]
    apart = 4 * encoding(0, provenance=provenance).hollow
    ranges = {name: f"{shapes[name].min():.0f} to {shapes[name].max():.0f} %" for name in COUNTERS}
    titles = [f"{title}: {ranges[name]}" for name, title in COUNTERS.items()]
    figure = make_subplots(2, 2, subplot_titles=titles, horizontal_spacing=0.18, vertical_spacing=0.13)
    for place, (counter, title) in enumerate(COUNTERS.items()):
        z = shapes.pivot(index="blocks", columns="threads", values=counter)  # (blocks, threads)
        trace = go.Heatmap(
            x=[f"{threads:,}" for threads in z.columns],
            y=[f"{blocks:,}" for blocks in z.index],
            z=z.to_numpy(),
            **named(title, provenance),
            coloraxis="coloraxis",
            xgap=apart,
            ygap=apart,
            texttemplate="%{z:.3~g}",
            hovertemplate=f"%{{y}} blocks of %{{x}} threads<br>{title}: %{{z:.1f}} %<extra></extra>",
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
    bar = {"title": f"%,<br>{escape(provenance.partition(',')[0])}", "thickness": 12}
    color = {"cmin": 0, "cmax": 100, "colorscale": ONE_HUE, "colorbar": bar}
    lowest = f"SM activity goes down to {shapes['sm_active'].min():.3g} %"
    text = f"Utilisation is {ranges['gpu_utilisation']} in every shape, {lowest}<br>{escape(provenance)}"
    title = {"text": text, "font": {"size": 13}}
    layout = {"template": "labkit_light", "height": 860, "title": title, "meta": {"finding": finding}}
    return figure.update_layout(**layout, coloraxis=color)


def figure_observer_effect(effects: pd.DataFrame) -> go.Figure:
    """A row per observer, with a mark and an interval for each load or source.

    Args:
        effects: columns observer, ratio, low, high, load and provenance.
    """
    worst = effects.loc[effects["ratio"].idxmax()]
    unclear = ((effects["low"] <= 1) & (effects["high"] >= 1)).sum()
    figure = new_figure(
        "Time under the observer, of that without it (ratio, logarithmic)",
        "Observer",
        f"{worst['observer']} costs the most: {worst['ratio']:.2f} times as long on the {worst['load']} load; "
        f"{unclear} of {effects['low'].count()} intervals include 1.",
    )
    for look, name, own in series(effects, "load", "provenance"):
        figure.add_scatter(
            x=own["ratio"],
            y=own["observer"],
            name=name,
            meta=look.meta,
            mode="markers",
            marker=look.mark(10),
            error_x=error_bars(own["ratio"], own["low"], own["high"]),
            hovertemplate=f"%{{y}}<br>{name}: %{{x:.3f}} times as long<extra></extra>",
        )
    figure.add_vline(x=1.0, line={"dash": "dot", "width": 1})
    # wide intervals are cut off by the frame: a few rounds on a busy machine must not hide all others
    room = [math.log10(effects["ratio"].min() / 1.5), math.log10(effects["ratio"].max() * 1.5)]
    return figure.update_xaxes(log_ticks(), type="log", range=room).update_yaxes(autorange="reversed")


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

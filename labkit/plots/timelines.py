"""Bars in lanes along time, and curves over time: of a step, of jobs, of speech."""

from collections.abc import Mapping
from html import escape

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from labkit.plots.descriptions import thinned
from labkit.plots.theme import encoding, named, new_figure

PHASES = ("input", "between steps", "host-to-device", "forward", "backward", "optimiser", "sync", "other", "idle",
          "communication")  # fmt: skip
LOOKS = {name: number for number, name in enumerate(PHASES)}
"""Looks that are the same in every figure, by kind of bar"""


def figure_phases(phases: pd.DataFrame, *, provenance: str = "measured") -> go.Figure:
    """One bar per step, made of its phases.

    Args:
        phases: columns step (a label), phase, time_ms.
    """
    of_step = phases.groupby("step", sort=False)["time_ms"]
    largest = phases.loc[of_step.idxmax()].assign(total=of_step.sum().to_numpy())
    finding = "; ".join(
        f"{row.step} takes {row.total:.3g} ms, most of it {row.phase} ({row.time_ms / row.total:.0%})"
        for row in largest.itertuples()
    )
    bars = phases.rename(columns={"step": "lane", "time_ms": "lasts"}).assign(
        starts=of_step.cumsum() - phases["time_ms"], kind=phases["phase"], name=phases["phase"]
    )
    figure = new_figure("Time of one step (ms)", "Step", f"{finding}.")
    return add_lane_bars(figure, bars, provenance, "ms")


def figure_icicle(tree: pd.DataFrame, *, provenance: str = "measured") -> go.Figure:
    """Calls within calls of a step: each call above those that it makes, as wide as the time it takes.

    Args:
        tree: columns name, phase, depth, calls, total_us, self_us, begin_us (`labkit.profiling.call_tree`).
    """
    longest = tree.loc[tree["self_us"].idxmax()]
    finding = (
        f"Most time in one place is {longest['name']} in {longest['phase']}: {longest['self_us'] / 1e3:.3g} ms itself, "
        f"{longest['self_us'] / tree['total_us'].iloc[0]:.0%} of the step."
    )
    more = [
        f"; {row.calls:.4g} calls per step, {row.self_us:,.1f} µs without what they call" for row in tree.itertuples()
    ]
    bars = tree.rename(columns={"depth": "lane", "phase": "kind"}).assign(
        starts=tree["begin_us"] / 1e3, lasts=tree["total_us"] / 1e3, more=more
    )
    figure = new_figure("Time of one step, callees side by side (ms)", "Calls within calls", finding)
    return add_lane_bars(figure, bars, provenance, "ms")


def figure_timeline(events: pd.DataFrame, *, provenance: str = "measured") -> go.Figure:
    """Events of one step over time, a line per level of calls on a thread and per stream of a GPU.

    Args:
        events: columns lane, kind, name, start_us, duration_us (`labkit.profiling.timeline`).
    """
    lanes = sorted(events["lane"].unique(), key=lambda lane: (not lane.startswith("thread"), lane))
    longest = events[events["kind"] != "annotation"].nlargest(1, "duration_us")
    words = [f"; the longest call is {row.name}, {row.duration_us / 1e3:.3g} ms" for row in longest.itertuples()]
    finding = f"{len(events):,} events on {len(lanes)} lines{''.join(words)}."
    figure = new_figure("Time since the step began (ms)", "Thread or stream", finding)
    bars = events.sort_values("lane", key=lambda lane: lane.map(lanes.index))
    bars = bars.assign(starts=bars["start_us"] / 1e3, lasts=bars["duration_us"] / 1e3)
    return add_lane_bars(figure, bars, provenance, "ms")


def add_lane_bars(
    figure: go.Figure, bars: pd.DataFrame, provenance: str, unit: str, looks: Mapping[str, int] = LOOKS
) -> go.Figure:
    """Draw a bar per row: columns lane (from the top in this order), starts, lasts, kind (which decides its look), name
    (which stands in it where it is wide enough), and more of it for the mouse."""
    lanes, ends = [escape(str(lane)) for lane in bars["lane"].unique()], bars["starts"] + bars["lasts"]
    for number, (kind, own) in enumerate(bars.groupby("kind", sort=False)):
        more = own.get("more", [""] * len(own))
        of_each = list(zip(own["name"], more, own["starts"], ends[own.index], strict=True))
        figure.add_bar(
            base=own["starts"],
            x=own["lasts"],
            y=[escape(str(lane)) for lane in own["lane"]],
            orientation="h",
            **named(str(kind), provenance),
            text=[escape(_short(name, (end - start) / ends.max())) for name, _, start, end in of_each],
            textposition="inside",
            insidetextanchor="start",
            constraintext="none",
            textangle=0,
            marker=encoding(looks.get(kind, number)).bar(),
            customdata=[
                f"{escape(name + more)}<br>{start:.4g} to {end:.4g} {unit}" for name, more, start, end in of_each
            ],
            hovertemplate="%{customdata}<extra></extra>",
        )
    figure.update_yaxes(type="category", categoryorder="array", categoryarray=lanes[::-1])
    return figure.update_layout(barmode="overlay", bargap=0.1, height=190 + 32 * len(lanes))


def _short(name: str, share: float) -> str:
    """The part of a name that fits into a bar of this share of the width."""
    name = name.removeprefix("autograd::engine::evaluate_function: ").removeprefix("aten::")
    room = int(130 * share)
    return name if share >= 0.03 and len(name) <= room else name[: room - 1] + "…" if room > 4 else ""


MOST_POINTS = 4000


def figure_memory_held(held: pd.DataFrame, *, provenance: str = "measured") -> go.Figure:
    """Bytes held over time, a line per device.

    Args:
        held: columns time_us, device (−1: the host), held_bytes (`labkit.profiling.memory_over_time`).
    """
    figure = new_figure("Time since the recording began (ms)", "Allocated since then (MiB)")
    peaks = []
    for number, (device, own) in enumerate(held.groupby("device")):
        name = "host" if device == -1 else f"GPU {device}"
        own = pd.DataFrame({"ms": own["time_us"] / 1e3, "mib": own["held_bytes"] / 2**20})
        top = own.loc[[own["mib"].idxmax()]]
        shown = pd.concat([thinned(own, MOST_POINTS), top]).sort_values("ms", kind="stable").drop_duplicates()
        figure.add_scatter(
            x=shown["ms"],
            y=shown["mib"],
            **named(name, provenance),
            hovertemplate="%{x:.2f} ms: %{y:.3g} MiB<extra></extra>",
            **encoding(number).curve() | {"mode": "lines"},
        )
        peaks.append(f"{name} holds most, {top['mib'].item():.3g} MiB, after {top['ms'].item():.3g} ms")
    figure.update_traces(line_shape="hv")
    return figure.update_layout(meta={"finding": f"{'; '.join(peaks)}." if peaks else None})


ONE_HUE = ((0.0, "#f2f7fb"), (0.5, "#9cc9e6"), (1.0, "#00436b"))
"""A colour scale from light to dark, which needs no colour vision"""
FRAMES_PER_S = 100
MOST_COLUMNS = 600
"""Widest picture; more frames are averaged, several to a column"""
RANGE_DB = 60
"""Range below the loudest sound; what is quieter has one colour"""


def figure_alignment(log_mel: np.ndarray, characters: pd.DataFrame) -> go.Figure:
    """A spectrogram, and above it each character that was heard, from its beginning to its end.

    Args:
        log_mel: float (frames, bands), natural logarithms of energies, 100 frames per second.
        characters: columns character, start_s, end_s (`labkit.transcription.align`).
    """
    frames, bands = log_mel.shape
    each = -(-frames // MOST_COLUMNS)
    columns = np.add.reduceat(log_mel, np.arange(0, frames, each)) / np.diff([*range(0, frames, each), frames])[:, None]
    loudness = (columns - columns.max()) * 10 / np.log(10)  # dB below the loudest
    seconds = np.arange(len(columns)) * each / FRAMES_PER_S
    text, seen = "".join(characters["character"]), characters["character"].replace(" ", "␣")
    finding = f"Nothing was heard in {frames / FRAMES_PER_S:.2f} s of audio."
    if text:
        finding = (
            f"“{text}” was heard from {characters['start_s'].iloc[0]:.2f} s to {characters['end_s'].iloc[-1]:.2f} s, "
            f"in {len(text)} characters, of {frames / FRAMES_PER_S:.2f} s of audio."
        )
    figure = new_figure("Time (s)", f"Mel band (1 to {bands}: 0 to 8 kHz)", finding)
    figure.add_heatmap(
        x=seconds.tolist(),
        y=list(range(1, bands + 1)),
        z=loudness.clip(-RANGE_DB).round().astype(np.int8).T,  # (bands, columns), a byte each
        colorscale=ONE_HUE,
        colorbar={"title": "dB below<br>the loudest", "thickness": 12},
        **named("log-mel energy", "measured"),
        hovertemplate="%{x:.2f} s, band %{y}: %{z} dB<extra></extra>",
    )
    look = encoding(1)
    gaps = [None] * len(characters)
    at = [value for span in zip(characters["start_s"], characters["end_s"], gaps, strict=True) for value in span]
    figure.add_scatter(
        x=at,
        y=[bands + 3] * len(at),
        mode="lines+markers",
        line={"color": look.color, "width": 4},
        marker={"color": look.color, "symbol": "line-ns-open", "size": 9},  # between neighbours
        hoverinfo="skip",
        showlegend=False,
    )
    figure.add_scatter(
        x=((characters["start_s"] + characters["end_s"]) / 2).tolist(),
        y=[bands + 7] * len(characters),
        mode="text",
        text=[escape(one) for one in seen],
        customdata=characters[["start_s", "end_s"]].to_numpy().round(3).tolist(),
        **named("characters heard", "measured"),
        hovertemplate="%{text}: %{customdata[0]:.2f} to %{customdata[1]:.2f} s<extra></extra>",
    )
    return figure.update_yaxes(range=[0.5, bands + 11]).update_layout(height=420, showlegend=False)

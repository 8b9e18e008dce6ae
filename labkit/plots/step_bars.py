"""Steps of training as bars: phases side by side, calls within calls (an icicle), and what ran when."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from labkit.plots.theme import encoding

PHASES = ("input", "between steps", "host-to-device", "forward", "backward", "optimiser", "sync", "other", "idle")
NAMED = {"textposition": "inside", "insidetextanchor": "start", "constraintext": "none", "textangle": 0}
"""How a name stands in its bar."""
LABELLED = 0.03
"""Share of the width from which on a bar has its name in it."""


def figure_phases(phases: pd.DataFrame, *, provenance: str = "measured", template: str = "labkit_light") -> go.Figure:
    """One bar a step, in parts that are its phases.

    Args:
        phases: columns step (a label), phase, time_ms.
        provenance: where the numbers come from.
        template: "labkit_light" or "labkit_dark".
    """
    figure = go.Figure(layout={"template": template})
    for phase, own in phases.groupby("phase", sort=False):
        figure.add_bar(
            x=own["time_ms"],
            y=own["step"],
            orientation="h",
            name=f"{escape(str(phase))} · {provenance}",
            marker=_look_of(phase, template),
            hovertemplate=f"%{{y}}: {escape(str(phase))} %{{x:.3g}} ms<extra></extra>",
        )
    figure.update_xaxes(title_text="Time of one step (ms)")
    figure.update_yaxes(title_text="Step", autorange="reversed", type="category")
    totals = phases.groupby("step", sort=False)["time_ms"].sum()
    largest = phases.loc[phases.groupby("step", sort=False)["time_ms"].idxmax()].set_index("step")
    finding = "; ".join(
        f"{step} takes {total:.3g} ms, most of it {largest['phase'][step]} ({largest['time_ms'][step] / total:.0%})"
        for step, total in totals.items()
    )
    figure.update_layout(barmode="stack", legend_traceorder="normal", meta={"finding": f"{finding}."})
    return figure


def figure_icicle(tree: pd.DataFrame, *, provenance: str = "measured", template: str = "labkit_light") -> go.Figure:
    """What calls what in a step: below each call those that it makes, as wide as the time they take.

    Args:
        tree: columns name, phase, depth, calls, total_us, self_us, begin_us (`labkit.profiling.call_tree`).
        provenance: where the numbers come from.
        template: "labkit_light" or "labkit_dark".
    """
    whole = tree["total_us"].iloc[0]
    figure = go.Figure(layout={"template": template})
    for phase, own in tree.groupby("phase", sort=False):
        figure.add_bar(
            base=own["begin_us"] / 1e3,
            x=own["total_us"] / 1e3,
            y=own["depth"],
            orientation="h",
            name=f"{escape(str(phase))} · {provenance}",
            text=_labels(own["name"], own["total_us"] / whole),
            **NAMED,
            marker=_look_of(phase, template),
            customdata=_escaped(own[["name", "calls", "total_us", "self_us"]]),
            hovertemplate="%{customdata[0]}<br>%{customdata[1]:.4g} calls a step<br>%{customdata[2]:,.1f} µs with what "
            "it calls<br>%{customdata[3]:,.1f} µs itself<extra></extra>",
        )
    figure.update_xaxes(title_text="Time of one step, callees side by side (ms)")
    figure.update_yaxes(title_text="Calls within calls", autorange="reversed", dtick=1)
    dearest = tree.loc[tree["self_us"].idxmax()]
    finding = (
        f"Most time in one place is {dearest['name']} in {dearest['phase']}: {dearest['self_us'] / 1e3:.3g} ms itself, "
        f"{dearest['self_us'] / whole:.0%} of the step."
    )
    figure.update_layout(barmode="overlay", bargap=0.06, meta={"finding": finding})
    return figure


def figure_timeline(events: pd.DataFrame, *, provenance: str = "measured", template: str = "labkit_light") -> go.Figure:
    """What ran when in one step, a line for each level of calls on a thread and for each stream of a GPU.

    Args:
        events: columns lane, kind, name, start_us, duration_us (`labkit.profiling.traces.timeline`).
        provenance: where the numbers come from.
        template: "labkit_light" or "labkit_dark".
    """
    whole = float((events["start_us"] + events["duration_us"]).max())
    figure = go.Figure(layout={"template": template})
    for number, (kind, own) in enumerate(events.groupby("kind", sort=False)):
        figure.add_bar(
            base=own["start_us"] / 1e3,
            x=own["duration_us"] / 1e3,
            y=own["lane"],
            orientation="h",
            name=f"{kind} · {provenance}",
            text=_labels(own["name"], own["duration_us"] / whole),
            **NAMED,
            marker=encoding(number, template).bar(),
            customdata=_escaped(own[["name", "duration_us", "start_us"]]),
            hovertemplate="%{customdata[0]}<br>%{customdata[1]:,.1f} µs, from %{customdata[2]:,.1f} µs<extra></extra>",
        )
    lanes = sorted(events["lane"].unique(), key=lambda lane: (not lane.startswith("thread"), lane))
    figure.update_xaxes(title_text="Time since the step began (ms)")
    figure.update_yaxes(
        title_text="Thread or stream", type="category", categoryorder="array", categoryarray=lanes[::-1]
    )
    longest = events[events["kind"] != "annotation"].nlargest(1, "duration_us")
    finding = "".join(
        f"; the longest call is {row.name}, {row.duration_us / 1e3:.3g} ms" for row in longest.itertuples(index=False)
    )
    figure.update_layout(
        barmode="overlay",
        bargap=0.1,
        meta={"finding": f"{len(events):,} events on {len(lanes)} lines{finding}."},
    )
    return figure


def _escaped(columns: pd.DataFrame) -> np.ndarray:
    """What a hover text shows, in which the names of kernels' templates would be tags."""
    return columns.assign(name=[escape(name) for name in columns["name"]]).to_numpy()


def _look_of(phase: str, template: str) -> dict:
    """The same in every figure."""
    return encoding(PHASES.index(phase) if phase in PHASES else len(PHASES), template).bar()


def _labels(names: Sequence[str], shares: pd.Series) -> list[str]:
    """Names of the bars that are wide enough for one; plotly cuts off what is too long."""
    return [escape(_short(name, share)) if share >= LABELLED else "" for name, share in zip(names, shares, strict=True)]


def _short(name: str, share: float) -> str:
    name = name.removeprefix("autograd::engine::evaluate_function: ").removeprefix("aten::")
    room = int(130 * share)
    return name if len(name) <= room else name[: max(room - 1, 0)] + "…" if room > 4 else ""

"""When jobs ran, in turn and at once, and when they reached their targets."""

from __future__ import annotations

from html import escape

import pandas as pd
import plotly.graph_objects as go

from labkit.plots.step_bars import PATTERNS
from labkit.plots.theme import INK, encoding
from labkit.plots.words import seconds_text


def figure_job_timelines(timelines: pd.DataFrame, *, template: str = "labkit_light") -> go.Figure:
    """A bar a job and mode on one axis of time, with a mark where its target was reached.

    Args:
        timelines: columns mode, job, starts_s, ends_s, reached_s (NaN where it was not), has_target, status,
            provenance; modes from the top in the order given.
        template: "labkit_light" or "labkit_dark".
    """
    figure = go.Figure(layout={"template": template})
    lanes = timelines.assign(lane=[escape(f"{row.mode}: {row.job}") for row in timelines.itertuples()])
    for number, ((job, provenance), own) in enumerate(lanes.groupby(["job", "provenance"], sort=False)):
        look, name = encoding(number, template), escape(f"{job} · {provenance}")
        figure.add_bar(
            base=own["starts_s"],
            x=own["ends_s"] - own["starts_s"],
            y=own["lane"],
            orientation="h",
            name=name,
            marker={
                "color": look.color,
                "pattern": {
                    "shape": PATTERNS[number % len(PATTERNS)],
                    "fillmode": "overlay",
                    "size": 6,
                    "solidity": 0.15,
                },
            },
            customdata=own[["mode", "starts_s", "ends_s", "status"]].map(
                lambda v: escape(v) if isinstance(v, str) else v
            ),
            hovertemplate=f"{name}, %{{customdata[0]}}<br>%{{customdata[1]:.2f}} s to %{{customdata[2]:.2f}} s, "
            "%{customdata[3]}<extra></extra>",
        )
    short = lanes[lanes["has_target"] & lanes["reached_s"].isna()]
    marks = (
        ("target reached", lanes[lanes["reached_s"].notna()], "reached_s", "star"),
        ("ended short of its target", short, "ends_s", "x"),
    )
    for name, own, column, symbol in marks:
        if len(own):
            figure.add_scatter(
                x=own[column],
                y=own["lane"],
                mode="markers",
                name=" · ".join([name, *map(escape, own["provenance"].unique())]),
                marker={
                    "symbol": symbol,
                    "size": 13,
                    "color": "white",
                    "line": {"color": INK["labkit_light"], "width": 1.5},
                },
                hovertemplate=f"%{{y}}: {name} at %{{x:.2f}} s<extra></extra>",
            )
    last_s = timelines.groupby("mode", sort=False)["ends_s"].max()
    figure.update_xaxes(title_text="Time since the first job began (s)", range=[0, 1.04 * float(last_s.max())])
    figure.update_yaxes(
        title_text="Mode: job", type="category", categoryorder="array", categoryarray=list(lanes["lane"])[::-1]
    )
    unmet = f"; {len(short)} ended short of their target" if len(short) else ""
    ends = "; ".join(f"{mode} after {seconds_text(end)}" for mode, end in last_s.items() if pd.notna(end))
    figure.update_layout(
        barmode="overlay",
        bargap=0.25,
        height=140 + 34 * len(timelines),
        meta={"finding": f"All jobs have ended: {ends}{unmet}."},
    )
    return figure

"""When jobs ran: in turn and at once, and on which device of a queue."""

from __future__ import annotations

from html import escape

import pandas as pd
import plotly.graph_objects as go

from labkit.plots.step_bars import LABELLED, NAMED
from labkit.plots.theme import INK, encoding, new_figure, series
from labkit.plots.words import seconds_text

FIRST, FULL, AGAIN = KINDS = ("first attempt", "ran out of memory", "another attempt")
"""Of a queue's bar; each looks the same in every figure."""


def figure_job_timelines(timelines: pd.DataFrame) -> go.Figure:
    """A bar a job and mode on one axis of time, with a mark where its target was reached.

    Args:
        timelines: columns mode, job, starts_s, ends_s, reached_s (NaN where it was not), has_target, status,
            provenance; modes from the top in the order given.
    """
    lanes = timelines.assign(lane=[escape(f"{row.mode}: {row.job}") for row in timelines.itertuples()])
    short = lanes[lanes["has_target"] & lanes["reached_s"].isna()]
    last_s = timelines.groupby("mode", sort=False)["ends_s"].max()
    unmet = f"; {len(short)} ended short of their target" if len(short) else ""
    ends = "; ".join(f"{mode} after {seconds_text(end)}" for mode, end in last_s.items() if pd.notna(end))
    figure = _chart(
        "Time since the first job began (s)",
        "Mode: job",
        f"All jobs have ended: {ends}{unmet}.",
        list(lanes["lane"]),
        float(last_s.max()),
    )
    for look, name, own in series(lanes, "job", "provenance"):
        hover = f"%{{customdata[0]}}<br>%{{customdata[1]:.2f}} s to %{{customdata[2]:.2f}} s<extra>{name}</extra>"
        _add_bars(figure, own, look, name, own["mode"] + ", " + own["status"], hover)
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
                    "symbol": symbol, "size": 13, "color": "white",
                    "line": {"color": INK["labkit_light"], "width": 1.5},
                },
                hovertemplate=f"%{{y}}: {name} at %{{x:.2f}} s<extra></extra>",
            )  # fmt: skip
    return figure


def figure_queue(schedule: pd.DataFrame, *, provenance: str) -> go.Figure:
    """A Gantt chart: for each device as many lines as jobs were ever on it at once.

    Args:
        schedule: one row an attempt: job, device, starts_s, ends_s (since the queue began), attempt (from 1), ending
            ("out of memory", or another word). Attempts that have not ended are left out.
        provenance: "measured", "recorded", or "predicted" where the queue was replayed from profiles.
    """
    schedule = schedule.dropna(subset="ends_s").reset_index(drop=True)
    again = schedule["attempt"].gt(1).map({True: AGAIN, False: FIRST})
    placed = schedule.assign(line=_lines(schedule), kind=again.mask(schedule["ending"] == "out of memory", FULL))
    placed["lane"] = [f"{escape(str(row.device))} · {row.line}" for row in placed.itertuples()]
    whole, at_once = float(placed["ends_s"].max()), placed.groupby("device", sort=False)["line"].nunique()
    figure = _chart(
        "Time since the queue began (s)",
        "Device · line",
        f"{placed['job'].nunique()} jobs on {len(at_once)} devices end after {seconds_text(whole)}; up to "
        f"{at_once.max()} at once on one device; {(placed['kind'] == FULL).sum()} attempts ran out of memory.",
        list(placed.sort_values(["device", "line"])["lane"].unique()),
        whole,
    )
    for number, kind in enumerate(KINDS):
        own = placed[placed["kind"] == kind]
        if own.empty:
            continue
        hover = "%{customdata[0]}<br>%{customdata[1]:.1f} s to %{customdata[2]:.1f} s<extra>" + kind + "</extra>"
        named = own["job"].astype(str) + ", attempt " + own["attempt"].astype(str)
        bars = _add_bars(figure, own, encoding(number), f"{kind} · {escape(provenance)}", named, hover)
        is_wide = own["ends_s"] - own["starts_s"] >= LABELLED * whole
        bars.update(text=own["job"].astype(str).map(escape).where(is_wide, ""), **NAMED)
    return figure


def _chart(x: str, y: str, finding: str, lanes: list[str], last_s: float) -> go.Figure:
    """An empty chart whose lanes lie from the top in this order."""
    figure = new_figure(x, y, finding, barmode="overlay", bargap=0.2, height=150 + 32 * len(lanes))
    figure.update_yaxes(type="category", categoryorder="array", categoryarray=lanes[::-1])
    return figure.update_xaxes(range=[0, 1.04 * last_s])


def _add_bars(figure: go.Figure, own: pd.DataFrame, look, name: str, named: pd.Series, hover: str) -> go.Bar:
    """A bar a row, from starts_s to ends_s in its lane; hover has what it is called, its start and its end."""
    figure.add_bar(
        base=own["starts_s"],
        x=own["ends_s"] - own["starts_s"],
        y=own["lane"],
        orientation="h",
        name=name,
        marker=look.bar(),
        customdata=own[["starts_s", "ends_s"]].assign(named=named.map(escape))[["named", "starts_s", "ends_s"]],
        hovertemplate=hover,
    )
    return figure.data[-1]


def _lines(schedule: pd.DataFrame) -> pd.Series:
    """The lowest line of its device, from 1, on which nothing else runs at that time."""
    lines = pd.Series(0, schedule.index)
    for _, own in schedule.groupby("device", sort=False):
        free_at: list[float] = []
        for row in own.sort_values("starts_s", kind="stable").itertuples():
            line = next((n for n, until in enumerate(free_at) if until <= row.starts_s), len(free_at))
            free_at[line : line + 1] = [row.ends_s]
            lines[row.Index] = line + 1
    return lines

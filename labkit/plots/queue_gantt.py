"""A queue of jobs on the devices there are: what ran where and when."""

from __future__ import annotations

from html import escape

import pandas as pd
import plotly.graph_objects as go

from labkit.plots.step_bars import LABELLED, NAMED, PATTERNS
from labkit.plots.theme import encoding
from labkit.plots.words import seconds_text

FIRST, FULL, AGAIN = KINDS = ("first attempt", "ran out of memory", "another attempt")
"""Of a bar; each looks the same in every figure."""


def figure_queue(schedule: pd.DataFrame, *, provenance: str, template: str = "labkit_light") -> go.Figure:
    """A Gantt chart: for each device as many lines as jobs were ever on it at once.

    Args:
        schedule: one row an attempt: job, device, starts_s, ends_s (since the queue began), attempt (from 1), ending
            ("out of memory", or another word). Attempts that have not ended are left out.
        provenance: "measured", "recorded", or "predicted" where the queue was replayed from profiles.
        template: "labkit_light" or "labkit_dark".
    """
    schedule = schedule.dropna(subset="ends_s").reset_index(drop=True)
    placed = schedule.assign(line=_lines(schedule), kind=_kinds(schedule))
    placed["lane"] = [f"{escape(str(row.device))} · {row.line}" for row in placed.itertuples()]
    whole = float(placed["ends_s"].max())
    lanes = list(placed.sort_values(["device", "line"])["lane"].unique())
    figure = go.Figure(layout={"template": template})
    for number, kind in enumerate(KINDS):
        own = placed[placed["kind"] == kind]
        if own.empty:
            continue
        name, length = f"{kind} · {escape(provenance)}", own["ends_s"] - own["starts_s"]
        figure.add_bar(
            base=own["starts_s"],
            x=length,
            y=own["lane"],
            orientation="h",
            name=name,
            text=[escape(str(j)) if of >= LABELLED * whole else "" for j, of in zip(own["job"], length, strict=True)],
            **NAMED,
            marker={
                "color": encoding(number, template).color,
                "line": {"color": "rgba(255,255,255,0.8)", "width": 1},
                "pattern": {"shape": PATTERNS[number], "fillmode": "overlay", "size": 6, "solidity": 0.15},
            },
            customdata=own.assign(job=own["job"].map(lambda job: escape(str(job))))[
                ["job", "starts_s", "ends_s", "attempt"]
            ],
            hovertemplate="%{customdata[0]}, attempt %{customdata[3]}<br>%{customdata[1]:.1f} s to "
            f"%{{customdata[2]:.1f}} s<extra>{kind}</extra>",
        )
    figure.update_xaxes(title_text="Time since the queue began (s)", range=[0, 1.03 * whole])
    figure.update_yaxes(title_text="Device · line", type="category", categoryorder="array", categoryarray=lanes[::-1])
    figure.update_layout(
        barmode="overlay",
        bargap=0.15,
        showlegend=True,
        height=160 + 30 * len(lanes),
        meta={"finding": _finding(placed, whole)},
    )
    return figure


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


def _kinds(schedule: pd.DataFrame) -> pd.Series:
    again = schedule["attempt"].gt(1).map({True: AGAIN, False: FIRST})
    return again.mask(schedule["ending"] == "out of memory", FULL)


def _finding(placed: pd.DataFrame, whole: float) -> str:
    at_once = placed.groupby("device", sort=False)["line"].nunique()
    full = int((placed["kind"] == FULL).sum())
    return (
        f"{placed['job'].nunique()} jobs on {len(at_once)} devices end after {seconds_text(whole)}; up to "
        f"{at_once.max()} at once on one device; {full} attempts ran out of memory."
    )

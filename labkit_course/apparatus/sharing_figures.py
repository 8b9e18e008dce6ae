"""Figures of labs 40 and 41: gain and slowdown of modes, a fault among neighbours, and a queue."""

import math
from html import escape

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from labkit.plots import AXIS, add_lane_bars, error_bars, new_figure, seconds_text, series

FIRST, FULL, AGAIN = "first attempt", "ran out of memory", "another attempt"
"""Kinds of bars of a queue"""


def figure_gain_against_slowdown(modes: pd.DataFrame) -> go.Figure:
    """Throughput gain over running alone against the mean slowdown of a job: a mark per mode and number of jobs.

    On the dotted curve of n jobs all are slowed alike, gain × slowdown = n; above it some are slowed more than others.
    An epoch takes as many times as long as alone as the slowdown says, which Robroek et al. (arXiv 2209.06018) set
    against the throughput.

    Args:
        modes: columns family (what the jobs are, whatever their number), mode, jobs, gain, gain_low, gain_high,
            slowdown, slowdown_low, slowdown_high (95 % intervals, NaN where there is none), provenance. Rows without a
            gain are left out.
    """
    known = modes.dropna(subset=["gain", "slowdown"]).sort_values("jobs", kind="stable", ignore_index=True)
    several = known["family"].nunique() > 1
    known["line"] = known["mode"] + (", " + known["family"] if several else "")
    figure = new_figure(
        "Mean slowdown of a job (times as long as alone)",
        "Throughput (times that of one after another)",
        _finding(known[known["mode"] != "alone"]),
        height=460,
    )
    for look, name, own in series(known, "line", "provenance"):
        figure.add_scatter(
            x=own["slowdown"],
            y=own["gain"],
            name=name,
            meta=look.meta,
            text=own["jobs"].astype(str).where(own["mode"] != "alone", ""),  # whose marks lie on one another
            customdata=own["jobs"],
            textposition="top right",
            error_x=error_bars(own["slowdown"], own["slowdown_low"], own["slowdown_high"]),
            error_y=error_bars(own["gain"], own["gain_low"], own["gain_high"]),
            hovertemplate=f"{name}, %{{customdata}} jobs<br>%{{y:.2f}} times the work<br>each job %{{x:.2f}} times as "
            "long<extra></extra>",
            **look.curve(11, width=1) | {"mode": "lines+markers+text"},
        )
    right, top = _end(known, "slowdown"), _end(known, "gain")
    for jobs in sorted(set(known["jobs"]) - {1}):
        x = np.linspace(max(jobs / top, 1e-3), right, 60)
        figure.add_scatter(
            x=x,
            y=jobs / x,
            mode="lines+text",
            text=[""] * 59 + [f"{jobs} jobs slowed alike"],
            textposition="top left",
            line={"color": AXIS["labkit_light"], "width": 1, "dash": "dot"},
            name=f"{jobs} jobs slowed alike",
            hoverinfo="skip",
            showlegend=False,
        )
    figure.add_hline(y=1, line={"dash": "dot", "width": 1.5}, annotation_text="no gain")
    return figure.update_xaxes(range=[0, right]).update_yaxes(range=[0, top])


def _end(known: pd.DataFrame, name: str) -> float:
    """Where an axis ends: intervals of few repeats may be so wide that they would hide all else, and are cut off."""
    if known.empty:
        return 2.0
    return float(min(1.12 * known[[name, f"{name}_high"]].max(axis=None), 1.5 * known[name].max()))


def _finding(shared: pd.DataFrame) -> str:
    if shared.empty:
        return "No mode that shares was measured."
    best = shared.loc[shared["gain"].idxmax()]
    sure = f", 95 % interval {best['gain_low']:.2f} to {best['gain_high']:.2f}" if pd.notna(best["gain_low"]) else ""
    return (
        f"{best['mode']} with {best['jobs']} jobs ({best['family']}) gains most: {best['gain']:.2f} times the work"
        f"{sure}, each job {best['slowdown']:.2f} times as long; {(shared['gain'] < 1).sum()} of {len(shared)} ways of "
        "sharing lose against one after another."
    )


def figure_fault_timeline(steps: pd.DataFrame, *, gone_s: float) -> go.Figure:
    """A line per client, and vertical lines where one failed and where it was gone.

    Args:
        steps: columns job, at_s (since the fault), steps_per_s and provenance; the faulty client first.
        gone_s: from the fault until the client was gone.
    """
    figure, changes = new_figure("Time since the fault (s)", "Steps per second"), []
    for look, name, own in series(steps, "job", "provenance"):
        at_s, speed = own["at_s"], own["steps_per_s"]
        hover = f"{name}<br>%{{x:.2f}} s: %{{y:.0f}} steps/s<extra></extra>"
        figure.add_scatter(x=at_s, y=speed, name=name, meta=look.meta, hovertemplate=hover, **look.curve(7))
        before, during, after = (speed[t].mean() for t in (at_s < 0, at_s.between(0, gone_s), at_s > gone_s))
        middle = "" if math.isnan(during) else f", {during:.0f} until the client was gone"
        changes.append(f"{escape(own['job'].iloc[0])}: {before:.0f} steps/s before{middle}, {after:.0f} after")
    for place, words, side in ((0.0, "fault", "left"), (gone_s, "gone", "right")):
        line = {"dash": "dot", "width": 1}
        figure.add_vline(x=place, line=line, annotation_text=words, annotation_position=f"top {side}")
    figure.update_yaxes(rangemode="tozero")
    finding = f"The client was gone {gone_s:.2f} s after its fault. {'; '.join(changes)}."
    return figure.update_layout(meta={"finding": finding})


def figure_queue(schedule: pd.DataFrame, *, provenance: str) -> go.Figure:
    """A Gantt chart: for each device as many lines as jobs were ever on it at once.

    Args:
        schedule: one row an attempt: job, device, starts_s, ends_s (since the queue began), attempt (from 1), ending
            ("out of memory", or another word). Attempts that have not ended are left out.
        provenance: "measured", "recorded", or "predicted" where the queue was replayed from profiles.
    """
    schedule = schedule.dropna(subset="ends_s").sort_values("starts_s", kind="stable", ignore_index=True)
    again = schedule["attempt"].gt(1).map({True: AGAIN, False: FIRST})
    bars = schedule.rename(columns={"job": "name", "starts_s": "starts"}).assign(
        lane="",
        lasts=schedule["ends_s"] - schedule["starts_s"],
        kind=again.mask(schedule["ending"] == "out of memory", FULL),
    )
    free_at: dict[str, float] = {}
    for row in bars.itertuples():  # on the lowest line of its device on which nothing else runs then
        lines = (f"{row.device} · {number}" for number in range(1, len(bars) + 1))
        bars.loc[row.Index, "lane"] = lane = next(line for line in lines if free_at.get(line, 0) <= row.starts)
        free_at[lane] = row.ends_s
    at_once = bars.groupby("device")["lane"].nunique()
    finding = (
        f"{bars['name'].nunique()} jobs on {len(at_once)} devices end after {seconds_text(bars['ends_s'].max())}; up "
        f"to {at_once.max()} at once on one device; {(bars['kind'] == FULL).sum()} attempts ran out of memory."
    )
    figure = new_figure("Time since the queue began (s)", "Device · line", finding)
    bars = bars.sort_values(["device", "lane"], kind="stable")
    return add_lane_bars(figure, bars, provenance, "s", {FIRST: 0, FULL: 1, AGAIN: 2})

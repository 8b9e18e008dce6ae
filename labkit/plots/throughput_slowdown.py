"""What sharing gains against what it costs each job."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from labkit.plots.observer_effect import error_bars
from labkit.plots.theme import AXIS, new_figure, series


def figure_gain_against_slowdown(modes: pd.DataFrame) -> go.Figure:
    """Throughput gain over running alone against the mean slowdown of a job: a mark a mode and number of jobs.

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
            text=own["jobs"].astype(str).where(own["mode"] != "alone", ""),  # those lie on one another
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
            mode="lines",
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

"""Hit rates of caches of rows: a panel for each skew of the lookups, over the share of the rows that is cached."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from labkit.plots.theme import log_ticks, new_figure, series
from labkit.plots.words import number_text

SOURCES = {
    "measured": ("cache, rows moved", "measured"),
    "simulated": ("cache, simulated", "predicted"),
    "bound": ("the most popular rows", "predicted"),
    "no cache": ("no cache: repeats within a batch", "predicted"),
    "heuristic": ("heuristic for uniform rows", "predicted"),
}
"""Where a rate comes from: its name in the legend, and its provenance"""


def figure_hit_rates(frame: pd.DataFrame, *, template: str = "labkit_light") -> go.Figure:
    """The share of lookups that a cache answers.

    Args:
        frame: `labkit.placement.hit_rate_table.hit_rates`, to which rows of the source "measured" may be added.

    Returns:
        A figure with a panel for each zipf_exponent, and in it a line for each policy and source.
    """
    names, provenance = zip(*frame["source"].map(SOURCES), strict=True)
    policies = [f"{policy.upper()} " if isinstance(policy, str) else "" for policy in frame["policy"]]
    named = frame.assign(provenance=provenance, of=[f"{one}{two}" for one, two in zip(policies, names, strict=True)])
    panels = {exponent: row for row, exponent in enumerate(sorted(named["zipf_exponent"].unique()), start=1)}
    grid = make_subplots(len(panels), 1, shared_xaxes=True, vertical_spacing=0.05)
    figure = new_figure("", "", _finding(named), template=template, height=130 + 190 * len(panels))
    figure = go.Figure(grid).update_layout(figure.layout)
    for number, (look, name, own) in enumerate(series(named, "of", "provenance", template=template)):
        for place, (exponent, rates) in enumerate(own.groupby("zipf_exponent")):
            figure.add_scatter(
                x=rates["cache_share"],
                y=rates["hit_rate"],
                name=name,
                **look.curve(8),
                hovertemplate=f"%{{x:.3~g}} of the rows: %{{y:.3~g}}<extra>{name}</extra>",
                showlegend=place == 0,
                legendgroup=str(number),
                row=panels[exponent],
                col=1,
            )
    for exponent, row in panels.items():
        figure.update_yaxes(title_text=f"Hit rate, Zipf {exponent:g}", range=[0, 1.03], row=row, col=1)
    low, high = named["cache_share"].min(), named["cache_share"].max()
    figure.update_xaxes(type="log", **log_ticks(low, high))
    return figure.update_xaxes(title_text="Cached share of the table's rows", row=len(panels), col=1)


def _finding(named: pd.DataFrame) -> str:
    """What the best cache answers, by exponent."""
    best = named[named["policy"].notna()].groupby("zipf_exponent")["hit_rate"].max()
    told = [f"{number_text(rate)} at Zipf exponent {exponent:g}" for exponent, rate in best.items()]
    return f"The highest hit rates of a cache are {', '.join(told)}."

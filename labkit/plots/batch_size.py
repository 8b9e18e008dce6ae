"""Batch size: how much training a target takes, how fast training goes, and the time, which is their quotient."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from labkit.errors import UserError
from labkit.plots.slowdowns import error_bars
from labkit.plots.theme import Encoding, log_ticks, new_figure, series
from labkit.plots.words import number_text, seconds_text

HOURS_FROM_S = 7200
"""The time's axis is in hours where the longest takes longer than this"""
BATCH_TICKS = {"tickvals": [2**power for power in range(18)], "ticktext": [f"{2**power:,}" for power in range(18)]}


def figure_batch_size(table: pd.DataFrame, *, template: str = "labkit_light") -> go.Figure:
    """Three panels over the batch size: the training that a target takes, the rate of training, and the time.

    Args:
        table: `labkit.tta.by_batch_size`, of one unit and of one or more devices.

    Returns:
        A figure with a line a device and provenance in each panel; both axes are logarithmic. Bars are intervals or
        ranges over seeds. A cross at the top of the first panel is a batch size with which half of the runs or more
        did not arrive. Panels without numbers (no time was published) are left out.
    """
    unit = str(table["unit"].iloc[0])
    hours = table["time_s"].replace(np.inf, np.nan).max() > HOURS_FROM_S
    time = (3600, "h") if hours else (1, "s")
    per = (1 / 3600, "h") if unit == "epochs" else (1, "s")
    panels = {
        f"{unit.capitalize()} to the target": (["need", "need_low", "need_high"], 1),
        f"{unit.capitalize()} {'an hour' if per[1] == 'h' else 'a second'} of training": (["rate"], per[0]),
        f"Time to the target ({time[1]})": (["time_s", "time_low_s", "time_high_s"], time[0]),
    }
    panels = {title: told for title, told in panels.items() if np.isfinite(table[told[0][0]]).any()}
    if not panels:
        target = number_text(table["target"].iloc[0])
        raise UserError(f"no batch size reaches the target {target} with half of its runs: choose an easier one.")
    grid = make_subplots(len(panels), 1, shared_xaxes=True, vertical_spacing=0.05)
    figure = new_figure("", "", _finding(table, unit), template=template, height=110 + 210 * len(panels))
    figure = go.Figure(grid).update_layout(figure.layout)
    groups = list(series(table, "device", "provenance", template=template))
    for row, (title, (columns, over)) in enumerate(panels.items(), start=1):
        for number, (look, name, own) in enumerate(groups):
            _add_line(figure, row, own, [own[column] / over for column in columns], look, name, number)
        ends = (table[columns] / over).replace(np.inf, np.nan)
        ticks = log_ticks(ends.min().min(), ends.max().max())
        figure.update_yaxes(title_text=title, type="log", **ticks, row=row, col=1)
    top = 1.25 * table["need_high"].where(np.isfinite(table["need_high"]), table["need"]).replace(np.inf, np.nan).max()
    for number, (look, name, own) in enumerate(groups):
        lost = own[~np.isfinite(own["need"])]
        if len(lost) and np.isfinite(top):
            figure.add_scatter(
                x=lost["batch_size"],
                y=[top] * len(lost),
                mode="markers",
                marker=look.mark(11) | {"symbol": "x-thin", "line": {"width": 2.5, "color": look.color}},
                name=f"half or more do not arrive: {name}",  # ends with the provenance, as every name does
                text=[f"{row.reached} of {row.runs} runs arrive" for row in lost.itertuples()],
                hovertemplate="batch %{x}: %{text}<extra></extra>",
                showlegend=False,
                legendgroup=str(number),
                row=1,
                col=1,
            )
    figure.update_xaxes(type="log", **BATCH_TICKS)
    return figure.update_xaxes(title_text="Batch size (samples a step)", row=len(panels), col=1)


def _add_line(
    figure: go.Figure, row: int, own: pd.DataFrame, values: list[pd.Series], look: Encoding, name: str, number: int
) -> None:
    middle = values[0].where(np.isfinite(values[0]))
    bars = {}
    if len(values) == 3:
        low, high = (each.where(np.isfinite(each)) for each in values[1:])
        bars = {"error_y": error_bars(middle, low, high)}
    figure.add_scatter(
        x=own["batch_size"],
        y=middle,
        name=name,
        **look.curve(8),
        **bars,
        hovertemplate=f"batch %{{x}}: %{{y:.4~g}}<extra>{name}</extra>",
        showlegend=row == 1,
        legendgroup=str(number),
        row=row,
        col=1,
    )


def _finding(table: pd.DataFrame, unit: str) -> str:
    """Of each device, the batch size that gets there soonest, or on the least training where no time is known."""
    parts = []
    for (device, _), own in table.groupby(["device", "provenance"], sort=False):
        column = "time_s" if np.isfinite(own["time_s"]).any() else "need"
        arrived = own[np.isfinite(own[column])]
        if arrived.empty:
            parts.append(f"on {device} no batch size gets there")
            continue
        best = arrived.loc[arrived[column].idxmin()]
        words = seconds_text(best[column]) if column == "time_s" else f"{number_text(best[column])} {unit}"
        lost = own[~np.isfinite(own["need"])]["batch_size"]
        tail = f", and {', '.join(f'{size:.0f}' for size in lost)} not at all" if len(lost) else ""
        parts.append(f"on {device} batch {best['batch_size']:.0f} gets there in the least, {words}{tail}")
    sentence = "; ".join(parts)
    return sentence[:1].upper() + sentence[1:] + "."

"""What a target costs: training, time, energy and money over targets or batch sizes, and two costs with their front."""

from collections.abc import Mapping
from html import escape
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from labkit import UserError
from labkit.plots.comparisons import error_bars
from labkit.plots.number_texts import metric_label, number_text, seconds_text
from labkit.plots.theme import INK, log_ticks, named, new_figure, series

HOURS_FROM_S = 7200
"""Longest time from which the axis of time is in hours"""
BATCH_TICKS = {"tickvals": [2**power for power in range(18)], "ticktext": [f"{2**power:,}" for power in range(18)]}


def figure_batch_size(table: pd.DataFrame) -> go.Figure:
    """Three panels over the batch size: the training that a target takes, the rate of training, and the time.

    Args:
        table: `labkit.tta.by_batch_size`, of one unit and of one or more devices.

    Returns:
        A figure with a line per device and provenance in each panel; both axes are logarithmic. Bars are intervals or
        ranges over seeds. A cross at the top of the first panel is a batch size with which half of the runs or more
        did not arrive. Panels without numbers (no time was published) are left out.
    """
    unit = str(table["unit"].iloc[0])
    hours = table["time_s"].replace(np.inf, np.nan).max() > HOURS_FROM_S
    time = (3600, "h") if hours else (1, "s")
    per = (1 / 3600, "h") if unit == "epochs" else (1, "s")
    panels = {
        f"{unit.capitalize()} to the target": (["need", "need_low", "need_high"], 1),
        f"{unit.capitalize()} per {'hour' if per[1] == 'h' else 'second'} of training": (["rate"], per[0]),
        f"Time to the target ({time[1]})": (["time_s", "time_low_s", "time_high_s"], time[0]),
    }
    panels = {title: each for title, each in panels.items() if np.isfinite(table[each[0][0]]).any()}
    if not panels:
        target = number_text(table["target"].iloc[0])
        raise UserError(f"no batch size reaches the target {target} with half of its runs: choose an easier one.")
    figure = _panels(len(panels), _finding(table, unit))
    for row, (title, (columns, over)) in enumerate(panels.items(), start=1):
        _add_lines(figure, row, table, "batch_size", columns, over)
        ends = (table[columns] / over).replace(np.inf, np.nan)
        ticks = log_ticks(ends.min().min(), ends.max().max())
        figure.update_yaxes(title_text=title, type="log", **ticks, row=row, col=1)
    top = 1.25 * table["need_high"].where(np.isfinite(table["need_high"]), table["need"]).replace(np.inf, np.nan).max()
    for number, (look, name, own) in enumerate(series(table, "device", "provenance")):
        lost = own[~np.isfinite(own["need"])]
        if len(lost) and np.isfinite(top):
            figure.add_scatter(
                x=lost["batch_size"],
                y=[top] * len(lost),
                mode="markers",
                marker=look.mark(11) | {"symbol": "x-thin", "line": {"width": 2.5, "color": look.color}},
                name=f"half or more do not arrive: {name}",
                text=[f"{row.reached} of {row.runs} runs arrive" for row in lost.itertuples()],
                hovertemplate="batch %{x}: %{text}<extra></extra>",
                showlegend=False,
                legendgroup=str(number),
                row=1,
                col=1,
            )
    figure.update_xaxes(type="log", **BATCH_TICKS)
    return figure.update_xaxes(title_text="Batch size (samples per step)", row=len(panels), col=1)


def _panels(count: int, finding: str) -> go.Figure:
    """A figure of panels below one another, without series."""
    grid = make_subplots(count, 1, shared_xaxes=True, vertical_spacing=0.05)
    return go.Figure(grid).update_layout(new_figure("", "", finding, height=110 + 205 * count).layout)


def _add_lines(figure: go.Figure, row: int, table: pd.DataFrame, x: str, columns: list[str], over: float = 1.0) -> None:
    """Draw a line per device and provenance in a panel: a column over x, with bars between two more columns."""
    place = "batch %{x}" if x == "batch_size" else "%{x:.4~g}"
    for number, (look, name, own) in enumerate(series(table, "device", "provenance")):
        own = own.sort_values(x)
        middle, *ends = (own[column].where(np.isfinite(own[column])) / over for column in columns)
        figure.add_scatter(
            x=own[x],
            y=middle,
            name=name,
            meta=look.meta,
            error_y=error_bars(middle, *ends) if ends else None,
            hovertemplate=f"{place}: %{{y:.4~g}}<extra>{name}</extra>",
            **look.curve(8) | {"showlegend": row == 1, "legendgroup": str(number), "row": row, "col": 1},
        )


def _finding(table: pd.DataFrame, unit: str) -> str:
    """The fastest batch size of each device, or the one that needs the least training where no time is known."""
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


TITLES = {
    "hours": "Time to the target (h)",
    "time_s": "Time to the target (s)",
    "kwh": "Energy (kWh)",
    "energy_j": "Energy (J)",
    "rent_usd": "Rent (US$)",
    "purchase_usd": "Share of the list price (US$)",
    "electricity_usd": "Electricity (US$)",
    "cost_usd": "Cost (US$)",
    "carbon_g": "Carbon (g CO₂e)",
}
"""Columns that are a cost, as an axis has them"""
BEYOND = 1.8
"""Where an axis ends, as a multiple of the most expensive point of the front; what costs more lies outside"""
SYMBOLS = ("star-triangle-up", "star-square", "star-diamond", "hexagram")
DECADES = {"tickvals": [10**power for power in range(10)], "ticktext": [f"{10**power:,}" for power in range(10)]}


def figure_costs(table: pd.DataFrame, costs: list[str], *, x: str = "target") -> go.Figure:
    """Costs of a target over targets or batch sizes, a panel per cost and a line per device.

    Args:
        table: columns device, provenance, metric, higher_is_better, `x` and the costs; NaN where there is no price or
            counter, inf where no run arrives.
        costs: of TITLES.
        x: "target" (harder ones to the right) or "batch_size".

    Raises:
        UserError: of a cost there is no number.
    """
    figure = _panels(len(costs), _least(table, costs, x))
    for row, cost in enumerate(costs, start=1):
        _require_numbers(table, cost)
        _add_lines(figure, row, table, x, [cost])
        figure.update_yaxes(title_text=TITLES[cost], type="log", row=row, col=1, **log_ticks())
    metric, title = table["metric"].iloc[0], "Batch size (samples per step)"
    if x == "batch_size":
        figure.update_xaxes(type="log", **BATCH_TICKS)
    else:
        title = f"Target {escape(metric_label(metric))} (harder to the right)"
        figure.update_xaxes(autorange=None if table["higher_is_better"].iloc[0] else "reversed")
    return figure.update_xaxes(title_text=title, row=len(costs), col=1)


def figure_pareto(points: pd.DataFrame, x: str, y: str, *, chosen: Mapping[str, int] | None = None) -> go.Figure:
    """Two costs of many settings, a mark each; where a column `front` says which are on it, a line joins those.

    Args:
        points: columns device, provenance, setting (a text), x and y (of TITLES).
        chosen: labels of rows of `points` to mark, by what to call them; four at most.

    Raises:
        UserError: no setting has both costs.
    """
    for cost in (x, y):
        _require_numbers(points, cost)
    points = points[np.isfinite(points[x]) & np.isfinite(points[y])]
    figure = new_figure(TITLES[x], TITLES[y], _ends(points, x, y), height=440)

    def add(own: pd.DataFrame, name: str, meta: dict[str, str], **look: Any) -> None:
        hover = f"%{{text}}<br>{TITLES[x]}: %{{x:.4~g}}<br>{TITLES[y]}: %{{y:.4~g}}<extra>{name}</extra>"
        figure.add_scatter(x=own[x], y=own[y], name=name, meta=meta, text=own["setting"], hovertemplate=hover, **look)

    for look, name, own in series(points, "device", "provenance"):
        if "front" in own:
            add(own[~own["front"]], name, look.meta, mode="markers", marker=look.mark(7) | {"opacity": 0.55})
            add(own[own["front"]].sort_values(x), f"front of {name}", look.meta, **look.curve(11))
        else:
            add(own, name, look.meta, mode="markers", marker=look.mark(11))
    for symbol, (label, at) in zip(SYMBOLS, (chosen or {}).items(), strict=False):
        own = points.loc[[at]]
        (provenance,) = own["provenance"]
        mark = {"symbol": symbol + "-open" * provenance.startswith("recorded"), "size": 20, "line": {"width": 2}}
        add(own, **named(label, provenance), mode="markers", marker=mark | {"color": INK["labkit_light"]})
    near = points[points["front"]] if "front" in points else points
    for axis, cost in ((figure.layout.xaxis, x), (figure.layout.yaxis, y)):
        ends = np.array([near[cost].min() / 1.4, near[cost].max() * BEYOND])
        is_wide = ends[1] > 100 * ends[0]
        axis.update({"type": "log", "range": [*np.log10(ends)], **DECADES} if is_wide else {"range": [*ends]})
    return figure


def _require_numbers(table: pd.DataFrame, cost: str) -> None:
    devices, known = ", ".join(table["device"].unique()) or "these devices", table[cost].dropna()
    if len(table) and known.empty:
        raise UserError(
            f"{TITLES[cost]} of {devices} is not known, because there is no price or counter: omit {cost!r}."
        )
    if np.isinf(known).all():
        raise UserError(f"no run of {devices} reaches this target, at any cost: choose an easier one.")


def _least(table: pd.DataFrame, costs: list[str], x: str) -> str:
    """The cheapest device of each cost by target, or the cheapest batch size of each device; and unknown costs."""
    parts, by = [], "target" if x == "target" else "device"
    for cost in costs:
        known = table[np.isfinite(table[cost])]
        least = known.loc[known.groupby(by)[cost].idxmin()]
        places = [f"{device} at {', '.join(map(number_text, own[x]))}" for device, own in least.groupby("device")]
        unknown = [str(device) for device, own in table.groupby("device") if own[cost].isna().all()]
        parts.append(f"{TITLES[cost]} is least with {'; '.join(places)}")
        parts += [f"Of {', '.join(unknown)} it is not known"] * bool(unknown)
    return ". ".join(parts) + "."


def _ends(points: pd.DataFrame, x: str, y: str) -> str:
    """Both ends of each front, and the number of settings; without fronts, each point."""
    parts = []
    for device, own in points.groupby("device", sort=False):
        front = (own[own["front"]] if "front" in own else own).sort_values(x)
        settings = [f"{row.setting} ({number_text(row[x])}, {number_text(row[y])})" for _, row in front.iterrows()]
        if "front" in own:
            ends = " to ".join(dict.fromkeys((settings[0], settings[-1])))
            parts.append(f"Of {len(own)} settings of {device} {len(front)} are on the front: {ends}")
        else:
            parts.append(f"{device}: {'; '.join(settings)}")
    return ". ".join(parts) + "."

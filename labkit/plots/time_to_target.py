"""Time to accuracy: the metric against time with where the target is met, and the median time against the target."""

import math
from html import escape
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from labkit import UserError
from labkit.plots.number_texts import AXIS_TITLES, axis_text, budget_words, is_not_known, metric_label
from labkit.plots.theme import INK, add_band, log_ticks, new_figure, series

ERROR_RATES = ("cer", "wer")


def figure_time_to_accuracy(
    curves: pd.DataFrame,
    target: float,
    *,
    crossings: pd.DataFrame | None = None,
    survival: pd.DataFrame | None = None,
    bands: pd.DataFrame | None = None,
    x: str = "wall_s",
) -> go.Figure:
    """The metric against time, for the runs of one job.

    Args:
        curves: one row per evaluation: run, job, budget, seed, provenance, metric, samples, wall_s, train_s,
            value.
        target: value of the metric to reach; drawn as a line.
        crossings: one row per run (`labkit.tta.crossings`); marks each run's first crossing.
        survival: one row per series (`labkit.tta.survival`), on the axis x; marks the median.
        bands: level, low, high (in the unit of x) and kind per series (`labkit.tta.band`); shades them.
        x: the column on the x axis: "wall_s", "train_s", "samples", "energy_j" or "cost_usd".

    Returns:
        A figure with one trace of each kind per series (of runs that differ by seed only): in `meta`, its kind (band,
        run, reached, median), the series' number and name. The runs of a series are curves of one trace, with gaps
        between them. `layout.meta["finding"]` is a sentence about the medians.

    Raises:
        UserError: there is no evaluation.
    """
    if curves.empty:
        raise UserError("none of these runs was evaluated yet, so there is no curve: let a run go on for longer.")
    metric = str(curves["metric"].iloc[0])
    label, longest = metric_label(metric), float(curves[x].max())
    axis = value_axis(curves["value"], target, metric)
    figure = new_figure(
        AXIS_TITLES[x],
        f"{escape(label)} on the validation split",
        "" if survival is None else finding(label, target, survival.to_dict("records"), x),
        height=460,
    )
    for number, (look, name, group) in enumerate(series(curves, *_by(curves))):
        meta, legend = {"group": number, "name": name} | look.meta, {"legendgroup": str(number)}
        if (own := _of_series(bands, group)) is not None:
            ends, levels = (own["low"], own["high"]), (own["level"], own["level"])
            kind = f"{name}: {own['kind'].iloc[0]}"
            add_band(figure, ends, levels, look, name=kind, meta={**meta, "kind": "band"}, **legend)
        drawn = with_gaps(group.assign(seed=[escape(str(seed)) for seed in group["seed"]]))
        seen = drawn["samples"].map("{:,.0f} samples".format)
        if "epochs" in drawn:
            seen = seen.where(drawn["samples"].notna(), drawn["epochs"].map("{:g} epochs".format))
        hover = drawn.assign(seen=seen)[["wall_s", "seen", "seed"]].to_numpy(object)
        hover[drawn["run"].isna()] = None  # NaN is not allowed in a notebook's messages
        figure.add_scatter(
            x=drawn[x],
            y=drawn["value"],
            **look.curve(),
            name=name,
            customdata=hover,
            hovertemplate=f"<b>{escape(label)} %{{y:.4f}}</b><br>%{{customdata[0]:.1f}} s wall time"
            f"<br>%{{customdata[1]}}<br>seed %{{customdata[2]}}<extra>{name}</extra>",
            meta={**meta, "kind": "run", "curves": group["run"].nunique()},
            **legend,
        )
        decoration = {"showlegend": False, "hoverinfo": "skip", **legend}
        if crossings is not None:
            place = group.sort_values("wall_s", kind="stable").groupby("run").cumcount()
            found = group.assign(evaluation=place).merge(crossings[["run", "evaluation"]])
            figure.add_scatter(
                x=found[x],
                y=found["value"],
                mode="markers",
                marker=look.mark(14) | {"symbol": f"{look.marker}-open", "line": {"width": 2.5}},
                name="first crossing",
                meta={**meta, "kind": "reached"},
                **decoration,
            )
        if (own := _of_series(survival, group)) is not None:
            median = own["median"].iloc[0]
            # each series' label on a line of its own above the axis, so that close medians stay readable
            feet = [axis.at(0.03 + 0.075 * number), axis.at(0)]
            points = 3 if np.isfinite(median) else 0
            figure.add_scatter(
                x=[median] * points,
                y=[target, *feet][:points],
                mode="lines+text",
                line={"color": look.color, "width": 1.5, "dash": "dot"},
                text=["", f" {axis_text(median, x)} ", ""][:points],
                textposition="middle left" if median > 0.75 * longest else "middle right",
                textfont={"color": INK["labkit_light"], "size": 13},
                name="median",
                meta={**meta, "kind": "median", "feet": feet},
                **decoration,
            )
    figure.add_hline(y=target, line={"color": INK["labkit_light"], "width": 1.5, "dash": "dash"})
    height = math.log10(target) if axis.log else target  # plotly: an exponent here, a value in shapes
    at_right = {"xref": "paper", "x": 1, "xanchor": "left", "xshift": 4, "align": "left", "showarrow": False}
    figure.add_annotation(y=height, text=f"target<br>{target:.6g}", font={"size": 12}, **at_right)
    figure.update_xaxes(range=[0, 1.03 * longest])
    figure.update_yaxes(type="log" if axis.log else "linear", range=axis.range)
    if axis.log:
        figure.update_yaxes(log_ticks())
    return figure


def _of_series(frame: pd.DataFrame | None, group: pd.DataFrame) -> pd.DataFrame | None:
    """The rows of the series that these evaluations are of; None where there are none."""
    own = None if frame is None else frame.merge(group[_by(group)].drop_duplicates())
    return None if own is None or own.empty else own


def _by(frame: pd.DataFrame) -> list[str]:
    """The columns that tell the series of one job apart; frames that a notebook makes may have no setting."""
    return [name for name in ("budget", "setting", "provenance") if name in frame]


def with_gaps(curves: pd.DataFrame) -> pd.DataFrame:
    """The evaluations run after run, with an empty row between two runs, at which the pen is lifted."""
    rows = curves.sort_values("run", key=lambda run: pd.factorize(run)[0], kind="stable")
    rows.index = np.arange(len(rows)) + (rows["run"] != rows["run"].shift()).cumsum() - 1
    return rows.reindex(range(rows.index[-1] + 1))


class ValueAxis(NamedTuple):
    """The y axis as plotly wants it: where it is logarithmic, its ends are exponents of ten."""

    log: bool
    range: tuple[float, float]

    def at(self, share: float) -> float:
        """The value at this share of the way up."""
        place = self.range[0] + share * (self.range[1] - self.range[0])
        return 10**place if self.log else place


def value_axis(values: pd.Series, target: float, metric: str) -> ValueAxis:
    """An axis on which the start of training, at chance level, does not squash the part around the target.

    Error rates fall over more than one power of ten, so theirs is logarithmic, unless it has to show 0 or less.
    Elsewhere, when leaving out the third of the evaluations that lie furthest from the
    target makes the range much smaller, the axis starts there; the reader can still zoom out.
    """
    values = values[np.isfinite(values)]
    low, high = float(min(values.min(), target)), float(max(values.max(), target))
    if metric in ERROR_RATES and low > 0:
        return ValueAxis(True, (math.log10(low / 2), math.log10(high * 1.12)))  # room below for the medians' labels
    near = nearest(values, target, 2 / 3)
    if values.max() - values.min() >= 1.5 * (near.max() - near.min()):
        low, high = float(min(near.min(), target)), float(max(near.max(), target))
    margin = 0.08 * (high - low) or 0.05 * abs(target) or 1.0
    is_falling = values.median() > target
    return ValueAxis(False, (low - margin * (3 if is_falling else 1), high + margin))


def nearest(values: pd.Series, target: float, share: float) -> pd.Series:
    """The share of the values that lies nearest to the target."""
    distance = (values - target).abs()
    return values[distance <= distance.quantile(share)]


def finding(label: str, target: float, survival: list[dict[str, Any]], x: str) -> str:
    """The medians in one sentence, fastest first, from the rows of `labkit.tta.survival`."""
    parts = []
    for row in sorted(survival, key=lambda row: (row["median"] != row["median"], row["median"])):  # NaN last
        name = " · ".join(filter(None, (budget_words(row["budget"]), row.get("setting"))))
        is_lost = is_not_known(row["median"], row["failed"], row["runs"])
        words = "not known" if is_lost else axis_text(row["median"], x)
        parts.append(f"{name} {words} ({row['reached']} of {row['runs']} runs)")
    return f"Target {label} {target:.6g}, median until it was reached: {'; '.join(parts)}."


def figure_time_against_target(
    times: pd.DataFrame, target: float, *, metric: str, higher_is_better: bool, x: str = "wall_s"
) -> go.Figure:
    """Median time to target for every target of a grid, a line per series; harder targets to the right.

    Args:
        times: one row per series and target: `labkit.tta.survival` of several targets, on the axis x.
        target: the target in use, drawn as a vertical line.
        metric: its metric.
        higher_is_better: its direction; falling metrics have a reversed axis.
        x: what `median` counts: "wall_s", "train_s", "samples" or "cost_usd".

    Returns:
        A figure. A line ends where half of the runs do not reach the target; the shading is the median's interval, of
        fewer than five runs their range, where it has two ends.
    """
    label = metric_label(metric)
    figure = new_figure(
        f"Target {escape(label)} (harder to the right)",
        f"Median {AXIS_TITLES[x][0].lower()}{AXIS_TITLES[x][1:]}",
        _finding(times, label, higher_is_better),
        height=380,
    )
    for number, (look, name, group) in enumerate(series(times, *_by(times))):
        meta, legend = {"group": number, "name": name} | look.meta, {"legendgroup": str(number)}
        group = group.sort_values("target")
        full = group[np.isfinite(group["high"])]
        places, ends = (full["target"], full["target"]), (full["low"], full["high"])
        band = f"{name}: interval or range"
        add_band(figure, places, ends, look, name=band, meta={**meta, "kind": "band"}, **legend)
        figure.add_scatter(
            x=group["target"],
            y=group["median"].where(np.isfinite(group["median"])),
            **look.curve(5),
            name=name,
            hovertemplate=f"{escape(label)} %{{x:.4f}}<br><b>%{{y:,.4~g}}</b><extra>{name}</extra>",
            meta={**meta, "kind": "run"},
            **legend,
        )
    figure.add_vline(x=target, line={"color": INK["labkit_light"], "width": 1.5, "dash": "dash"})
    limits = [float(times["target"].min()), float(times["target"].max())]
    margin = 0.02 * (limits[1] - limits[0])
    limits = [limits[0] - margin, limits[1] + margin]
    return figure.update_xaxes(range=limits if higher_is_better else limits[::-1]).update_yaxes(rangemode="tozero")


def _finding(times: pd.DataFrame, label: str, higher_is_better: bool) -> str:
    parts = []
    for (*names, _), group in times.groupby(_by(times), sort=False, dropna=False):
        place = " · ".join(filter(None, names))
        found = group[np.isfinite(group["median"])].sort_values("target", ascending=higher_is_better)
        if found.empty:
            parts.append(f"{place} reaches none of these targets")
            continue
        easy, hard = found.iloc[0], found.iloc[-1]
        parts.append(
            f"on {place} the median goes from {easy['median']:.3g} at {label} {easy['target']:.4g} "
            f"to {hard['median']:.3g} at {label} {hard['target']:.4g}, the hardest it reaches"
        )
    sentence = "; ".join(parts)
    return sentence[:1].upper() + sentence[1:] + "."

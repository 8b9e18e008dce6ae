"""The time-to-accuracy explorer: move the target, change metric and axis, choose budgets, take the numbers along."""

from __future__ import annotations

import math
from collections.abc import Iterable
from html import escape
from pathlib import Path

import ipywidgets as widgets
import numpy as np
import pandas as pd
import plotly.graph_objects as go

from labkit.errors import UserError
from labkit.plots import figure_time_to_accuracy
from labkit.plots.describe import in_words
from labkit.plots.theme import check_template
from labkit.plots.time_to_accuracy import value_axis
from labkit.plots.words import AXIS_TITLES
from labkit.report.table import job_name, times_table
from labkit.runs.query import many_objects, run_folders
from labkit.tracking.goal import METRICS, metric_named
from labkit.tta import crossings, run_table, survival
from labkit.tta.cost import price_usd_per_h, with_cost
from labkit.tta.curves import curves_by_metric, default_target
from labkit.tta.energy import with_energy
from labkit.widgets.figures import PictureButton, live_figure

WIDE = {"description_width": "initial"}
BESIDE = {"width": "auto", "margin": "0 16px 0 0"}


def explore(folders: Iterable[Path | str] | Path | str, *, template: str = "labkit_light") -> Explorer:
    """Explore the time to accuracy of any runs.

    Args:
        folders: run folders; or one folder of runs, of which all are taken.
        template: "labkit_light" or "labkit_dark".

    Returns:
        A widget; its `figure` is a plain figure of what is shown, its `crossings` and `times` the frames behind it
        (`labkit.tta.crossings` and `survival`).

    Raises:
        UserError: there are no runs, or none was evaluated.
    """
    check_template(template)
    if isinstance(folders, str | Path):
        runs_dir, folders = folders, run_folders(folders)
        if not folders:
            raise UserError(f"{runs_dir}: there is no run here: train some, or name another folder.")
    return Explorer(list(folders), template)


class Explorer(widgets.VBox):
    """The controls, the figure, its description in words, and the line of code that draws the same."""

    def __init__(self, folders: list[Path | str], template: str = "labkit_light"):
        self._folders, self._template = folders, template
        with many_objects():
            self._runs = run_table(folders)
            names = dict.fromkeys([*METRICS, *self._runs["metric"].dropna()])
            self._by_metric = {name: with_cost(frame) for name, frame in curves_by_metric(self._runs, names).items()}
        self.undisturbed = widgets.Checkbox(
            description="leave out runs that other programs disturbed", indent=False, layout={"width": "360px"}
        )
        if not (self._runs["disturbed"] != "").any():
            self.undisturbed.layout.display = "none"
        if not self._by_metric:
            raise UserError("none of these runs was evaluated, so there is no accuracy to explore: train some.")
        jobs = [job for job in dict.fromkeys(self._runs["job"]) if self._metrics_of(job)]
        self.job = widgets.Dropdown(
            options=[(job_name(job), job) for job in jobs], description="Job", layout={"width": "260px"}
        )
        self.metric = widgets.Dropdown(description="Metric", layout={"width": "290px"})
        self.target = widgets.FloatSlider(
            description="Target", readout_format=".4g", continuous_update=True, layout={"width": "420px"}
        )
        self.x = widgets.Dropdown(description="Horizontal axis", style=WIDE, layout={"width": "420px"})
        self.without = widgets.HTML()
        self.log_x, self.log_y = (
            widgets.Checkbox(description=f"logarithmic {axis}", indent=False, layout={"width": "190px"})
            for axis in ("horizontally", "vertically")
        )
        self.budgets = widgets.HBox(layout={"flex_flow": "row wrap"})
        self.plot = live_figure()
        self.words = widgets.HTML()
        self.save = widgets.Button(
            description="Save CSV", tooltip="Write these crossings into the notebook's folder", icon="save"
        )
        self.saved = widgets.HTML()
        self.save.on_click(lambda _: self._save())
        self.code = widgets.HTML()
        self.crossings, self.times = pd.DataFrame(), pd.DataFrame()
        self._setting_up = False
        self._choose_job()
        for control, change in (
            (self.job, self._choose_job),
            (self.metric, self._choose_metric),
            (self.target, self._draw),
            (self.x, self._draw),
            (self.log_x, self._draw),
            (self.log_y, self._draw),
            (self.undisturbed, self._draw),
        ):
            control.observe(lambda _, change=change: self._setting_up or change(), names="value")
        super().__init__(
            [
                widgets.HBox([self.job, self.metric, self.target], layout={"flex_flow": "row wrap"}),
                widgets.HBox([self.x, self.log_x, self.log_y], layout={"flex_flow": "row wrap"}),
                self.without,
                self.budgets,
                self.undisturbed,
                self.plot,
                self.words,
                widgets.HBox([self.save, PictureButton(), self.saved], layout={"flex_flow": "row wrap"}),
                self.code,
            ]
        )

    @property
    def figure(self) -> go.Figure:
        """A plain figure of what is shown: for a saved notebook, a page, or a file."""
        return go.Figure(self.plot.to_dict())

    def _metrics_of(self, job: str) -> list[str]:
        return [name for name, frame in self._by_metric.items() if (frame["job"] == job).any()]

    def _choose_job(self) -> None:
        names = self._metrics_of(self.job.value)
        own = self._runs[self._runs["job"] == self.job.value]
        watched = own["metric"].mode().iloc[0]
        self._setting_up = True  # each control below is set before the figure is drawn once
        self.metric.options = [(metric_named(name, None).label, name) for name in names]
        self.metric.value = watched if watched in names else names[0]
        self.budgets.children = [
            widgets.Checkbox(value=True, description=budget, indent=False, layout=BESIDE)
            for budget in dict.fromkeys(own["budget"])
        ]
        for box in self.budgets.children:
            box.observe(lambda _: self._setting_up or self._draw(), names="value")
        self._choose_metric()

    def _choose_metric(self) -> None:
        frame = self._evaluations(all_budgets=True)
        low, high = float(frame["value"].min()), float(frame["value"].max())
        own = self._runs[self._runs["job"] == self.job.value]
        watched = own[own["metric"] == self.metric.value]
        target = default_target(frame, watched) if len(watched) else float(frame["value"].median())
        self._setting_up = True
        self.target.step = step = float(f"{max((high - low) / 200, 1e-9):.1g}")
        # whole steps from the target: a browser moves a value that lies between two places of a slider
        low = target - math.ceil(max(target - low, 0) / step) * step
        high = target + math.ceil(max(high - target, 0) / step) * step
        # a slider's limits must hold its value and each other at every moment
        self.target.min, self.target.max = min(low, self.target.min), max(high, self.target.max)
        self.target.value = target
        self.target.min, self.target.max = low, max(high, low + self.target.step)
        measured = own[own["run"].isin(frame["run"])]["energy_j"].notna().any()
        known = {name: measured if name == "energy_j" else frame[name].notna().any() for name in AXIS_TITLES}
        options = [(AXIS_TITLES[name], name) for name, is_known in known.items() if is_known]
        chosen = self.x.value if self.x.value in [name for _, name in options] else "wall_s"
        self.x.options = options
        self.without.value = "".join(f"<p>{escape(reason)}</p>" for reason in self._missing_axes(frame))
        self.x.value = chosen
        self.log_y.value = value_axis(frame["value"], target, self.metric.value).log
        self._setting_up = False
        self._draw()

    def _missing_axes(self, frame: pd.DataFrame) -> list[str]:
        """Why an axis is not offered, or leaves runs out."""
        own = self._runs[self._runs["run"].isin(frame["run"])]
        missing = []
        if (why := own.loc[own["energy_j"].isna(), "energy_note"].unique()).size:
            missing.append(f"No energy for {_how_many(own['energy_j'].isna())}: {'; '.join(why)}.")
        prices = own["tier"].map(price_usd_per_h)
        unpriced = prices.map(lambda price: price.value_usd is None)
        if unpriced.any():
            why = dict.fromkeys(price.note for price in prices[unpriced])
            missing.append(f"No cost for {_how_many(unpriced)}: {'; '.join(why)}.")
        return missing

    def _evaluations(self, *, all_budgets: bool = False) -> pd.DataFrame:
        frame = self._by_metric[self.metric.value]
        frame = frame[frame["job"] == self.job.value]
        return frame if all_budgets else frame[frame["budget"].isin(self._budgets)]

    def _draw(self) -> None:
        x, target = self.x.value, round(self.target.value, 9)
        if x == "energy_j" and x not in self._by_metric[self.metric.value]:  # it reads the samples of every run
            self._by_metric[self.metric.value] = with_energy(self._by_metric[self.metric.value], self._runs)
        runs = self._runs[(self._runs["job"] == self.job.value) & self._runs["budget"].isin(self._budgets)]
        if self.undisturbed.value:
            runs = runs[runs["disturbed"] == ""]
        frame = self._evaluations()
        frame = frame[frame[x].notna() & frame["run"].isin(runs["run"])]
        self.saved.value = ""
        self.save.disabled = frame.empty
        if frame.empty:
            self.crossings, self.times, self.plot.data = pd.DataFrame(), pd.DataFrame(), []
            self.plot.layout.shapes, self.plot.layout.annotations = [], []
            self.words.value = "<p>No run is chosen: tick a budget that has one with this axis.</p>"
            self.code.value = ""
            return
        self.crossings = crossings(frame, runs, target, x=x)
        self.times = survival(frame, runs, target, x=x)
        drawn = figure_time_to_accuracy(
            frame,
            target,
            crossings=self.crossings,
            survival=self.times,
            x=x,
            log_y=self.log_y.value,
            template=self._template,
        )
        if self.log_x.value:
            positive = frame.loc[frame[x] > 0, x]
            drawn.update_xaxes(type="log", range=[np.log10(positive.min()) - 0.05, np.log10(positive.max()) + 0.05])
        with self.plot.batch_update():
            self.plot.data = []
            self.plot.add_traces(drawn.data)
            self.plot.layout = drawn.layout
        self.words.value = f"<p>{escape(in_words(drawn))}</p>{times_table(self.times, x)}"
        self.code.value = f"<p>The same in code:</p><pre>{escape(self.in_code())}</pre>"

    @property
    def _budgets(self) -> list[str]:
        return [box.description for box in self.budgets.children if box.value]

    def in_code(self) -> str:
        """The lines that draw what is shown from `folders`."""
        x, target = self.x.value, f"{round(self.target.value, 9):.9g}"
        read = f"curves(folders, metric={self.metric.value!r}, runs=runs)"
        read = {"cost_usd": f"with_cost({read})", "energy_j": f"with_energy({read}, runs)"}.get(x, read)
        undisturbed = ", undisturbed=True" * self.undisturbed.value
        lines = [
            f"runs = run_table(folders{undisturbed})"
            f".query({f'job == {self.job.value!r} and budget in {self._budgets!r}'!r})",
            f"evaluations = {read}.dropna(subset={x!r})",
            f"crossed = crossings(evaluations, runs, {target}, x={x!r})",
            f"times = survival(evaluations, runs, {target}, x={x!r})",
            f"figure = figure_time_to_accuracy(evaluations, {target}, crossings=crossed, survival=times, x={x!r}, "
            f"log_y={self.log_y.value})",
            *(["figure.update_xaxes(type='log', autorange=True)"] if self.log_x.value else []),
            "show(figure)",
        ]
        return "\n".join(lines)

    def _save(self) -> None:
        """Write the crossings beside the notebook; a file of that name gets the new ones."""
        x = self.x.value
        path = Path(f"time_to_{self.metric.value}_{self.target.value:.6g}_{x}.csv")
        table = self.crossings
        if x == "samples":  # which are there already, under their name
            table = table.drop(columns=["time_to_target_s", "sustained_time_s", "last_time_s", "spent_s"])
        elif x != "wall_s":
            named = {
                "time_to_target_s": f"{x}_to_target",
                "sustained_time_s": f"sustained_{x}",
                "last_time_s": f"last_{x}",
                "spent_s": f"spent_{x}",
            }
            table = table.rename(columns=named)
        table.to_csv(path, index=False)
        self.saved.value = (
            f"<span role='status'>Saved {len(self.crossings)} rows to {escape(str(path.resolve()))}</span>"
        )


def _how_many(left_out: pd.Series) -> str:
    return "these runs" if left_out.all() else f"{int(left_out.sum())} of {len(left_out)} runs"

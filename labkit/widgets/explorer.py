"""The time-to-accuracy explorer: move the target, change metric and axis, choose budgets, take the numbers along."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from html import escape
from pathlib import Path

import ipywidgets as widgets
import pandas as pd
import plotly.graph_objects as go

from labkit.errors import UserError
from labkit.plots import AXIS_TITLES, figure_time_to_accuracy
from labkit.report import job_name
from labkit.runs import Frames, replace_text, run_folders
from labkit.tracking import METRICS, metric_named
from labkit.tta import (
    crossings,
    curves_by_metric,
    default_target,
    price_usd_per_h,
    run_table,
    survival,
    with_cost,
    with_energy,
)
from labkit.widgets.figures import FigureView, PictureButton


def explore(folders: Frames | Iterable[Path | str] | Path | str, *, template: str = "labkit_light") -> Explorer:
    """Explore the time to accuracy of any runs.

    Args:
        folders: run folders; or one folder of runs, of which all are taken; or frames, as `labkit.runs.recorded` gives.
        template: "labkit_light" or "labkit_dark".

    Returns:
        A widget; its `figure` is a plain figure of what is shown, its `crossings` and `times` the frames behind it
        (`labkit.tta.crossings` and `survival`).

    Raises:
        UserError: there are no runs, or none was evaluated.
    """
    if isinstance(folders, str | Path):
        runs_dir, folders = folders, run_folders(folders)
        if not folders:
            raise UserError(f"{runs_dir}: there is no run here: train some, or name another folder.")
    return Explorer(folders if isinstance(folders, Frames) else list(folders), template)


class Explorer(FigureView):
    """The controls, the figure, its description in words, and the line of code that draws the same."""

    def __init__(self, source: Frames | list[Path | str], template: str = "labkit_light"):
        super().__init__(template)
        self._of_frames = isinstance(source, Frames)
        if self._of_frames:
            self._runs, frames = source.runs, dict(list(source.curves.groupby("metric", sort=False)))
        else:
            self._runs = run_table(source)
            frames = curves_by_metric(self._runs, dict.fromkeys([*METRICS, *self._runs["metric"].dropna()]))
        self._by_metric = {name: with_cost(frame) for name, frame in frames.items()}
        if not self._by_metric:
            raise UserError("none of these runs was evaluated, so there is no accuracy to explore: train some.")
        jobs = [(job_name(job), job) for job in dict.fromkeys(self._runs["job"]) if self._metrics_of(job)]
        whole_title = {"style": {"description_width": "initial"}, "layout": {"width": "420px"}}
        self.job = widgets.Dropdown(options=jobs, description="Job", layout={"width": "260px"})
        self.metric = widgets.Dropdown(description="Metric", layout={"width": "290px"})
        self.target = widgets.FloatSlider(description="Target", readout_format=".4g", layout={"width": "420px"})
        self.x = widgets.Dropdown(description="Horizontal axis", **whole_title)
        wraps = {"layout": {"flex_flow": "row wrap"}}
        self.budgets = widgets.HBox(**wraps)
        tooltip = "Write these crossings into the notebook's folder"
        self.save = widgets.Button(description="Save CSV", tooltip=tooltip, icon="save")
        self.save.on_click(lambda _: self._save())
        self.without, self.saved, self.code = widgets.HTML(), widgets.HTML(), widgets.HTML()
        self._setting_up = False
        self._choose_job()
        self._on_change(self._choose_job, self.job)
        self._on_change(self._choose_metric, self.metric)
        self._on_change(self._show, self.target, self.x)
        self.children = [
            widgets.HBox([self.job, self.metric, self.target, self.x], **wraps),
            self.without,
            self.budgets,
            self.plot,
            self.words,
            widgets.HBox([self.save, PictureButton(), self.saved], **wraps),
            self.code,
        ]

    def in_code(self) -> str:
        """The lines that draw what is shown from `folders`, or from `frames`."""
        x, target = self.x.value, f"{self._target:.9g}"
        read = f"curves(folders, metric={self.metric.value!r}, runs=runs)"
        if self._of_frames:
            read = f"frames.curves.query({f'metric == {self.metric.value!r}'!r}).merge(runs['run'])"
        read = {"cost_usd": f"with_cost({read})", "energy_j": f"with_energy({read}, runs)"}.get(x, read)
        chosen = f"job == {self.job.value!r} and budget in {self._budgets!r}"
        lines = [
            f"runs = {'frames.runs' if self._of_frames else 'run_table(folders)'}.query({chosen!r})",
            f"evaluations = {read}.dropna(subset={x!r})",
            f"crossed = crossings(evaluations, runs, {target}, x={x!r})",
            f"times = survival(evaluations, runs, {target}, x={x!r})",
            f"show(figure_time_to_accuracy(evaluations, {target}, crossings=crossed, survival=times, x={x!r}))",
        ]
        return "\n".join(lines)

    @property
    def _budgets(self) -> list[str]:
        return [box.description for box in self.budgets.children if box.value]

    @property
    def _target(self) -> float:
        return round(self.target.value, 9)

    def _on_change(self, change: Callable[[], None], *controls: widgets.Widget) -> None:
        for control in controls:
            control.observe(lambda _: self._setting_up or change(), names="value")

    def _metrics_of(self, job: str) -> list[str]:
        return [name for name, frame in self._by_metric.items() if (frame["job"] == job).any()]

    def _own(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Runs of the job, and their evaluations of the metric."""
        both = self._runs, self._by_metric[self.metric.value]
        return tuple(frame[frame["job"] == self.job.value] for frame in both)

    def _choose_job(self) -> None:
        names, own = self._metrics_of(self.job.value), self._runs[self._runs["job"] == self.job.value]
        watched = own["metric"].mode().iloc[0]
        self._setting_up = True  # each control below is set before the figure is drawn once
        self.metric.options = [(metric_named(name, None).label, name) for name in names]
        self.metric.value = watched if watched in names else names[0]
        layout = {"width": "auto", "margin": "0 16px 0 0"}
        self.budgets.children = [
            widgets.Checkbox(value=True, description=budget, indent=False, layout=layout)
            for budget in dict.fromkeys(own["budget"])
        ]
        self._on_change(self._show, *self.budgets.children)
        self._choose_metric()

    def _choose_metric(self) -> None:
        own, frame = self._own()
        values, watched = frame["value"].dropna(), own[own["metric"] == self.metric.value]
        target = default_target(frame, watched) if len(watched) else float(values.median())
        known = own[own["run"].isin(frame["run"])]
        told = frame.assign(energy_j=known["energy_j"].max())  # of each evaluation it is read when it is asked for
        axes = [(title, name) for name, title in AXIS_TITLES.items() if name in told and told[name].notna().any()]
        chosen = self.x.value
        self._setting_up = True
        # whole steps from the target: a browser moves a value that lies between two places of a slider
        step = float(f"{max((values.max() - values.min()) / 200, 1e-9):.1g}")
        below, above = (math.ceil(max(away, 0) / step) for away in (target - values.min(), values.max() - target))
        with self.target.hold_trait_notifications():
            self.target.step, self.target.value = step, target
            self.target.min, self.target.max = target - below * step, target + max(above, 1) * step
        self.x.options = axes
        self.x.value = chosen if chosen in dict(axes).values() else axes[0][1]
        self.without.value = _missing_axes(known)
        self._setting_up = False
        self._show()

    def _show(self) -> None:
        x, target, name = self.x.value, self._target, self.metric.value
        if x == "energy_j" and x not in self._by_metric[name]:  # it reads the samples of every run
            self._by_metric[name] = with_energy(self._by_metric[name], self._runs)
        runs, frame = self._own()
        runs = runs[runs["budget"].isin(self._budgets)]
        frame = frame[frame[x].notna() & frame["run"].isin(runs["run"])]
        self.saved.value, self.save.disabled = "", frame.empty
        if frame.empty:
            self.crossings, self.times = pd.DataFrame(), pd.DataFrame()
            self.draw(go.Figure(layout={"template": self.template}))
            self.words.value = "<p>No run is chosen: tick a budget that has one with this axis.</p>"
            self.code.value = ""
            return
        self.crossings = crossings(frame, runs, target, x=x)
        self.times = survival(frame, runs, target, x=x)
        found = {"crossings": self.crossings, "survival": self.times}
        self.draw(figure_time_to_accuracy(frame, target, **found, x=x, template=self.template))
        self.code.value = f"<p>The same in code:</p><pre>{escape(self.in_code())}</pre>"

    def _save(self) -> None:
        """Write the crossings beside the notebook, their columns named after the axis; an older file is replaced."""
        x = self.x.value
        path = Path(f"time_to_{self.metric.value}_{self.target.value:.6g}_{x}.csv")
        named = {"time_to_target_s": f"{x}_to_target", "sustained_time_s": f"sustained_{x}", "last_time_s": f"last_{x}"}
        table = self.crossings.rename(columns=named | {"spent_s": f"spent_{x}"})
        table = table.loc[:, ~table.columns.duplicated()]  # samples are there already
        replace_text(path, table.to_csv(index=False))
        self.saved.value = f"<span role='status'>Saved {len(table)} rows to {escape(str(path.resolve()))}</span>"


def _missing_axes(runs: pd.DataFrame) -> str:
    """Why an axis is not offered, or leaves some of these runs out."""
    prices = runs["tier"].map(price_usd_per_h)
    notes = prices.map(lambda price: price.note if price.value_usd is None else None)
    lines = []
    for what, why in (("energy", runs["energy_note"].where(runs["energy_j"].isna())), ("cost", notes)):
        count, reasons = why.notna().sum(), "; ".join(why.dropna().unique())
        which = "these runs" if count == len(runs) else f"{count} of {len(runs)} runs"
        lines += [f"<p>No {what} for {which}: {escape(reasons)}.</p>"] if count else []
    return "".join(lines)

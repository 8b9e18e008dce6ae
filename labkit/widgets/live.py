"""A figure that grows with each evaluation of a run that this notebook trains."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets
import plotly.graph_objects as go
from IPython import get_ipython
from IPython.display import display

from labkit.plots.describe import in_words
from labkit.plots.theme import INK, check_template, encoding
from labkit.plots.words import AXIS_TITLES, metric_label, number_text
from labkit.runs import read_run
from labkit.tracking.events import Progress
from labkit.widgets.figures import live_figure

if TYPE_CHECKING:  # which imports torch
    from labkit.tracking.run import Run


def live(run: Run, *, template: str = "labkit_light") -> LiveRun:
    """Draw the metric of an open run as it trains; one line inside of `with labkit.Run(...) as run:`.

    Args:
        run: the run, whose target's metric is drawn, else the first that it evaluates.
        template: "labkit_light" or "labkit_dark".

    Returns:
        The view, which a notebook shows at once; its `figure` is a plain figure, for a saved notebook.
    """
    check_template(template)
    view = LiveRun(run, template)
    run.listen(view.hear)
    if get_ipython() is not None:  # a script has nowhere to show it
        display(view)
    return view


class LiveRun(widgets.VBox):
    """The metric over wall time, its target as a dashed line, and the same in words."""

    def __init__(self, run: Run, template: str):
        look, self._target = encoding(0, template), run.target
        self._metric = run.target.metric.name if run.target else ""
        self.plot, self.words = live_figure(), widgets.HTML()
        self.plot.update_layout(template=template, height=340, showlegend=True)
        self.plot.update_xaxes(title_text=AXIS_TITLES["wall_s"], rangemode="tozero")
        self.plot.add_scatter(
            x=[],
            y=[],
            name=f"{escape(run.name)} · {read_run(run.folder).provenance.kind}",
            mode="lines+markers",
            line={"color": look.color, "dash": look.dash, "width": 2},
            marker={"symbol": look.marker, "size": 6, "color": look.color},
        )
        if run.target and run.target.value is not None:
            line = {"color": INK[template], "dash": "dash", "width": 1.5}
            self.plot.add_hline(y=run.target.value, line=line, annotation={"text": f"target {run.target.value:g}"})
        super().__init__([self.plot, self.words])

    @property
    def figure(self) -> go.Figure:
        """A plain figure of what is shown."""
        return go.Figure(self.plot.to_dict())

    def hear(self, event: Any) -> None:
        """Take an event of the run; an evaluation is drawn."""
        if not (isinstance(event, Progress) and event.evaluated and event.metrics):
            return
        self._metric = self._metric or next(iter(event.metrics))
        value, seconds, (curve,) = event.metrics[self._metric], event.point.wall_s, self.plot.data
        label = metric_label(self._metric)
        with self.plot.batch_update():
            curve.x, curve.y = [*curve.x, seconds], [*curve.y, value]
            self.plot.layout.yaxis.title.text = f"{escape(label)} on the validation split"
            self.plot.layout.meta = {"finding": f"{label} {number_text(value)} after {seconds:.1f} s."}
        self.words.value = f"<p role='status'>{escape(in_words(self.plot))}</p>"

"""A figure that grows with each evaluation of a run that this notebook trains."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from IPython import get_ipython
from IPython.display import display

from labkit.plots import AXIS_TITLES, encoding, metric_label, new_figure, number_text
from labkit.runs import read_run
from labkit.tracking import Progress
from labkit.widgets.figures import FigureView

if TYPE_CHECKING:  # which imports torch
    from labkit.tracking import Run


def live(run: Run, *, template: str = "labkit_light") -> LiveRun:
    """Draw the metric of an open run as it trains; one line inside of `with labkit.Run(...) as run:`.

    Args:
        run: the run, whose target's metric is drawn, else the first that it evaluates.
        template: "labkit_light" or "labkit_dark".

    Returns:
        The view, which a notebook shows at once; its `figure` is a plain figure, for a saved notebook.
    """
    view = LiveRun(run, template)
    run.listen(view.hear)
    if get_ipython() is not None:  # a script has nowhere to show it
        display(view)
    return view


class LiveRun(FigureView):
    """The metric over wall time, its target as a dashed line, and the same in words."""

    spoken = True

    def __init__(self, run: Run, template: str):
        super().__init__(template)
        target = run.goal.target
        self._metric = target.metric.name if target else ""
        name = f"{escape(run.name)} · {read_run(run.folder).provenance.kind}"
        drawn = new_figure(AXIS_TITLES["wall_s"], "", "No value yet.", template=template, height=340)
        drawn.add_scatter(x=[], y=[], name=name, **encoding(0, template).curve())
        if target and target.value is not None:
            drawn.add_hline(y=target.value, line_dash="dash", annotation={"text": f"target {target.value:g}"})
        self.draw(drawn.update_xaxes(rangemode="tozero"))
        self.children = [self.plot, self.words]

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
        self.tell()

"""Figures in a notebook that change: one that grows as a run trains, and the views of a profile."""

from html import escape
from pathlib import Path
from typing import Any

import anywidget
import ipywidgets as widgets
import plotly.graph_objects as go
from IPython import get_ipython
from IPython.display import display

from labkit import plots, profiling, report, runs, tracking

_ESM = """
// Presses the camera of the plot's own toolbar, which the keyboard does not reach.
function render({ el }) {
  const button = document.createElement("button");
  button.className = "jupyter-button widget-button";
  button.type = "button";
  button.style.margin = "var(--jp-widgets-margin, 2px)";
  button.textContent = "Save PNG";
  button.title = "Save the figure as shown, as a picture, where your browser saves downloads";
  button.addEventListener("click", () => {
    let around = el.parentElement;
    while (around && !around.querySelector(".js-plotly-plot")) around = around.parentElement;
    const camera = around?.querySelector('.modebar-btn[data-title^="Download plot"]');
    if (camera) camera.click(); else button.textContent = "There is no figure to save";
  });
  el.appendChild(button);
}
export default { render };
"""


class FigureView(widgets.VBox):
    """A box around `plot`, a figure whose changes reach the browser at once, and `words`, its description."""

    spoken = False
    """Whether a screen reader announces each change"""

    def __init__(self):
        plots.import_nbformat()  # before plotly does
        self.plot: Any = go.FigureWidget()
        self.words = widgets.HTML()
        super().__init__()

    @property
    def figure(self) -> go.Figure:
        """A plain figure of what is shown: for a page, a file, or a saved notebook, which should hold no widget."""
        return go.Figure(self.plot)

    def draw(self, drawn: go.Figure) -> None:
        """Show another figure and its description in place of what is there."""
        with self.plot.batch_update():
            self.plot.data = []
            self.plot.add_traces(drawn.data)
            self.plot.layout = drawn.layout  # last: a browser that has the title has the traces, too
        self.describe()

    def describe(self) -> None:
        """Describe the figure as it is now."""
        text = escape(plots.description_text(self.plot))
        folded = f"<details><summary>The figure as text</summary><p>{text}</p></details>"
        self.words.value = plots.IN_THE_DARK + (f"<p role='status'>{text}</p>" if self.spoken else folded)


class PictureButton(anywidget.AnyWidget):
    """Saves the nearest figure around it as PNG, from the browser that drew it: nothing has to be installed."""

    _esm = _ESM


def live(run: "tracking.Run") -> "LiveRun":
    """Draw the metric of an open run as it trains; one line inside `with labkit.Run(...) as run:`.

    Args:
        run: the run, whose target's metric is drawn, else the first that it evaluates.

    Returns:
        The view, which a notebook shows at once; its `figure` is a plain figure, for a saved notebook.
    """
    view = LiveRun(run)
    run.listen(view.hear)
    if get_ipython() is not None:  # a script has nowhere to show it
        display(view)
    return view


class LiveRun(FigureView):
    """The metric over wall time, its target as a dashed line, and a description."""

    spoken = True

    def __init__(self, run: "tracking.Run"):
        super().__init__()
        target = run.goal.target
        self._metric = target.metric.name if target else ""
        trace = plots.named(run.name, runs.read_run(run.folder).provenance.kind)
        drawn = plots.new_figure(plots.AXIS_TITLES["wall_s"], "", "No value yet.", height=340)
        drawn.add_scatter(x=[], y=[], **trace, **plots.encoding(0).curve())
        if target and target.value is not None:
            drawn.add_hline(y=target.value, line_dash="dash", annotation={"text": f"target {target.value:g}"})
        self.draw(drawn.update_xaxes(rangemode="tozero"))
        self.children = [self.plot, self.words]

    def hear(self, event: Any) -> None:
        """Take an event of the run; an evaluation is drawn."""
        if not (isinstance(event, tracking.Progress) and event.evaluated and event.metrics):
            return
        self._metric = self._metric or next(iter(event.metrics))
        value, seconds, (curve,) = event.metrics[self._metric], event.point.wall_s, self.plot.data
        label = plots.metric_label(self._metric)
        with self.plot.batch_update():
            curve.x, curve.y = [*curve.x, seconds], [*curve.y, value]
            self.plot.layout.yaxis.title.text = f"{escape(label)} on the validation split"
            self.plot.layout.meta = {"finding": f"{label} {plots.number_text(value)} after {seconds:.1f} s."}
        self.describe()


SHOWN_OPERATORS = 12


def profile_view(run: "Path | str | profiling.Profile") -> "ProfileView":
    """Look at a profiled run.

    Args:
        run: its folder, or its profile where that is read already.

    Returns:
        A widget; its `figure` is a plain figure of what is shown.

    Raises:
        UserError: the run was not profiled.
    """
    return ProfileView(run if isinstance(run, profiling.Profile) else profiling.read_profile(run))


class ProfileView(FigureView):
    """What to try, a choice of views, the figure with its description, and the most expensive operators."""

    def __init__(self, profile: "profiling.Profile"):
        super().__init__()
        self.profile = profile
        self.view = widgets.ToggleButtons(
            options=[(view.title, view) for view in report.VIEWS],
            description="View",
            tooltips=[view.about for view in report.VIEWS],
            style={"button_width": "auto"},
        )
        tries = "".join(f"<li>{line}</li>" for line in report.what_to_try(profile))
        self.answer = widgets.HTML(f"<p>{escape(profile.headline)}</p><ul>{tries}</ul>")
        self.about, self.code = widgets.HTML(), widgets.HTML()
        # whose names are row headers
        table = report.operator_texts(profile.operators.head(SHOWN_OPERATORS)).set_index("operator").rename_axis(None)
        most_expensive = widgets.HTML(table.to_html(border=0))
        operators = widgets.Accordion([most_expensive], titles=[f"The {SHOWN_OPERATORS} most expensive operators"])
        self.view.observe(lambda _: self._show(), names="value")
        self._show()
        self.children = [
            self.answer, self.view, self.about, self.plot, self.words, PictureButton(), operators, self.code,
        ]  # fmt: skip

    def _show(self) -> None:
        view = self.view.value
        why = view.missing(self.profile)
        self.draw(go.Figure() if why else view.draw(self.profile))
        if why:
            self.words.value = ""
        self.about.value = f"<p role='status'>{escape(why or view.about)}</p>"
        self.code.value = (
            f"<p>The same in code: <code>profile = labkit.profiling.read_profile({str(self.profile.folder)!r}); "
            f"labkit.plots.show({escape(view.code)})</code></p>"
        )

"""A step, walked over again with one overhead after the other gone."""

from __future__ import annotations

from html import escape

import ipywidgets as widgets

from labkit.plots import figure_timeline
from labkit.widgets import FigureView, PictureButton
from labkit_course.apparatus.recorded_step import RecordedStep
from labkit_course.apparatus.two_clocks import KINDS, walk, walk_timeline


def overheads(step: RecordedStep) -> Overheads:
    """Remove those of T1 to T5 that a recorded step has, one after the other, and see what is left of it."""
    return Overheads(step)


class Overheads(FigureView):
    """A slider, the step's length, the figure of host and streams with its text, and the line that draws the same."""

    def __init__(self, step: RecordedStep):
        super().__init__()
        self._step, self._whole_us = step, walk(step).step_us
        self._kinds = tuple(kind for kind in KINDS if any(call.kind == kind for call in step.calls))
        options = [(", ".join(self._kinds[:count]) or "none", count) for count in range(len(self._kinds) + 1)]
        self.gone = widgets.SelectionSlider(
            options=options,
            description="Overheads that take no time",
            style={"description_width": "230px"},
            layout={"width": "560px"},
        )
        self.length, self.code = widgets.HTML(), widgets.HTML()
        self.gone.observe(lambda _: self._show(), names="value")
        self.children = [self.gone, self.length, self.plot, self.words, PictureButton(), self.code]
        self._show()

    def in_code(self) -> str:
        """The line that draws what is shown."""
        timeline = f"apparatus.walk_timeline(step, without={self._kinds[: self.gone.value]!r})"
        return f"labkit.plots.show(labkit.plots.figure_timeline({timeline}, provenance='predicted'))"

    def _show(self) -> None:
        without = self._kinds[: self.gone.value]
        left_us = walk(self._step, without=without).step_us
        share = f"{left_us / 1e3:.2f} ms, {left_us / self._whole_us:.0%} of the whole step (predicted)"
        self.length.value = f"<p>{share}</p>"
        timeline = walk_timeline(self._step, without=without)
        self.draw(figure_timeline(timeline, provenance="predicted"))
        self.code.value = f"<p>The same in code:</p><pre>{escape(self.in_code())}</pre>"

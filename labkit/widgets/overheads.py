"""A step on the GPU, walked over again with one overhead after the other gone."""

from __future__ import annotations

from html import escape

import ipywidgets as widgets

from labkit.perfmodel.recorded_step import RecordedStep
from labkit.perfmodel.walk import KINDS, walk, walk_timeline
from labkit.plots.gantt import figure_timeline
from labkit.widgets.figures import FigureView, PictureButton


def overheads(step: RecordedStep, *, template: str = "labkit_light") -> Overheads:
    """Let T1 to T5 of a step take no time, one after the other, and see what is left of it.

    Args:
        step: what stands in the notebook under the name `step` is what the line of code below the figure takes.
        template: "labkit_light" or "labkit_dark".
    """
    return Overheads(step, template)


class Overheads(FigureView):
    """A slider, the step's length, the figure of host and streams in words, too, and the line that draws the same."""

    def __init__(self, step: RecordedStep, template: str = "labkit_light"):
        super().__init__(template)
        self._step, self._whole_us = step, walk(step).step_us
        options = [("none", 0), *((f"T1 to {kind}" if kind != "T1" else kind, n) for n, kind in enumerate(KINDS, 1))]
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
        """The line that draws what is shown from `step`."""
        return (
            f"show(figure_timeline(walk_timeline(step, without={KINDS[: self.gone.value]!r}), provenance='predicted'))"
        )

    def _show(self) -> None:
        without = KINDS[: self.gone.value]
        left_us = walk(self._step, without=without).step_us
        share = f"{left_us / 1e3:.2f} ms, {left_us / self._whole_us:.0%} of the whole step (predicted)"
        self.length.value = f"<p>{share}</p>"
        timeline = walk_timeline(self._step, without=without)
        self.draw(figure_timeline(timeline, provenance="predicted", template=self.template))
        self.code.value = f"<p>The same in code:</p><pre>{escape(self.in_code())}</pre>"

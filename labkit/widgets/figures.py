"""A view of a figure that changes, with what it shows in words, and the button that saves it."""

from __future__ import annotations

from html import escape

import anywidget
import ipywidgets as widgets
import plotly.graph_objects as go

from labkit.plots import IN_THE_DARK, in_words
from labkit.quick_nbformat import import_nbformat

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
    """A box around `plot`, a figure whose changes reach the browser at once, and `words`."""

    spoken = False
    """Whether a screen reader tells each change"""

    def __init__(self, template: str):
        import_nbformat()  # before plotly does
        self.template, self.plot, self.words = template, go.FigureWidget(), widgets.HTML()
        super().__init__()

    @property
    def figure(self) -> go.Figure:
        """A plain figure of what is shown: for a page, a file, or a saved notebook, which should hold no widget."""
        return go.Figure(self.plot)

    def draw(self, drawn: go.Figure) -> None:
        """Show another figure, and its words, in place of what is there."""
        with self.plot.batch_update():
            self.plot.data = []
            self.plot.add_traces(drawn.data)
            self.plot.layout = drawn.layout  # last: who sees its title sees the traces, too
        self.tell()

    def tell(self) -> None:
        """Put what the figure shows into words."""
        words = escape(in_words(self.plot))
        told = f"<p role='status'>{words}</p>" if self.spoken else f"<p>{words}</p>"
        folded = f"<details><summary>The figure in words</summary>{told}</details>"
        self.words.value = IN_THE_DARK + (told if self.spoken else folded)


class PictureButton(anywidget.AnyWidget):
    """Saves the nearest figure around it as PNG, from the browser that drew it: nothing has to be installed."""

    _esm = _ESM

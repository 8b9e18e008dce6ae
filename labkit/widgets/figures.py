"""The figure that a view fills, and the button that saves it."""

from __future__ import annotations

import anywidget
import plotly.graph_objects as go

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


def live_figure() -> go.FigureWidget:
    """An empty figure whose changes reach the browser at once."""
    import_nbformat()  # before plotly does
    return go.FigureWidget()


def redraw(plot: go.FigureWidget, drawn: go.Figure) -> None:
    """Show another figure in place of what is there."""
    with plot.batch_update():
        plot.data = []
        plot.layout = drawn.layout
        plot.add_traces(drawn.data)


class PictureButton(anywidget.AnyWidget):
    """Saves the nearest figure around it as PNG, from the browser that drew it: nothing has to be installed."""

    _esm = _ESM

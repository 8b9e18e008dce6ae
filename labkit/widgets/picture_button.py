"""A button that saves a figure as PNG from the reader's browser, which drew it: nothing has to be installed."""

from __future__ import annotations

import anywidget

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


class PictureButton(anywidget.AnyWidget):
    """Belongs beside the figure that it saves: the nearest one around it."""

    _esm = _ESM

"""What an hour and a grid are worth: two sliders that turn time and energy into dollars and grams."""

from __future__ import annotations

from html import escape

import ipywidgets as widgets
import numpy as np
import pandas as pd

from labkit.hardware import get_grid, load_grids
from labkit.plots import figure_pareto
from labkit.tta import priced
from labkit.widgets import FigureView, PictureButton

DEAREST_USD_PER_H = 5.0
"""The right end of the slider, a little more than any tier of the catalogue rents for"""


def prices(points: pd.DataFrame, *, usd_per_kwh: float, template: str = "labkit_light") -> Prices:
    """Move the price of an hour and the carbon of a kilowatt-hour, and see which settings are worth it.

    Args:
        points: settings of one target: columns device, provenance, setting (in words), time_s and energy_j. What
            stands in the notebook under the name `points` is what the line of code below the figure takes.
        usd_per_kwh: price of electricity, which comes on top of an hour's.
        template: "labkit_light" or "labkit_dark".

    Raises:
        UserError: no setting gets to the target.
    """
    return Prices(points, usd_per_kwh, template)


class Prices(FigureView):
    """Two sliders, the figure of dollars against grams, its description in words, and the line that draws the same."""

    def __init__(self, points: pd.DataFrame, usd_per_kwh: float, template: str = "labkit_light"):
        super().__init__(template)
        self._points, self._usd_per_kwh = points[np.isfinite(points["time_s"])], usd_per_kwh
        wide = {"style": {"description_width": "230px"}, "layout": {"width": "560px"}}
        self.usd_per_h = widgets.FloatSlider(
            0.0,
            min=0.0 if usd_per_kwh else 0.01,
            max=DEAREST_USD_PER_H,
            step=0.01,
            description="An hour, without electricity ($)",
            **wide,
        )
        grids = [grid for grid in load_grids().values() if grid.carbon_g_per_kwh]
        self.g_per_kwh = widgets.SelectionSlider(
            options=[(f"{grid.label}, {grid.carbon_g_per_kwh:.0f}", grid.carbon_g_per_kwh) for grid in grids],
            value=get_grid("world").carbon_g_per_kwh,
            description="Carbon of the grid (g CO₂e a kWh)",
            **wide,
        )
        self.code = widgets.HTML()
        for slider in (self.usd_per_h, self.g_per_kwh):
            slider.observe(lambda _: self._show(), names="value")
        self.children = [self.usd_per_h, self.g_per_kwh, self.plot, self.words, PictureButton(), self.code]
        self._show()

    def in_code(self) -> str:
        """The line that draws what is shown from `points`."""
        own = (
            f"usd_per_h={self.usd_per_h.value:g}, usd_per_kwh={self._usd_per_kwh:g}, g_per_kwh={self.g_per_kwh.value:g}"
        )
        return f'show(figure_pareto(priced(points, {own}), "cost_usd", "carbon_g"))'

    def _show(self) -> None:
        own = {"usd_per_h": self.usd_per_h.value, "usd_per_kwh": self._usd_per_kwh, "g_per_kwh": self.g_per_kwh.value}
        self.draw(figure_pareto(priced(self._points, **own), "cost_usd", "carbon_g", template=self.template))
        self.code.value = f"<p>The same in code:</p><pre>{escape(self.in_code())}</pre>"

"""The sliders of prices move the settings in dollars and grams, their words, and the line that draws the same."""

import math

import pandas as pd
import plotly.graph_objects as go
import pytest

from labkit.errors import UserError
from labkit.plots import figure_pareto
from labkit.tta import priced
from labkit_course.apparatus import prices

POINTS = pd.DataFrame(
    {"time_s": [3600.0, 7200.0], "energy_j": [7.2e6, 3.6e6], "setting": ["fast", "thrifty"], "device": "V100"}
).assign(provenance="recorded, You et al. 2023")


def test_sliders_have_descriptions_and_move_the_front_its_words_and_the_line_of_code():
    view = prices(POINTS, usd_per_kwh=0.1)
    assert view.usd_per_h.description and view.g_per_kwh.description and view.usd_per_h.value == 0
    front = view.plot.data[1]
    assert (list(front.text), list(front.x), list(front.y)) == (["thrifty"], [0.1], [481])
    view.usd_per_h.value, view.g_per_kwh.value = 1.0, 56.039
    front = view.plot.data[1]
    assert list(front.text) == ["fast", "thrifty"] and list(front.x) == pytest.approx([1.2, 2.1])
    assert "2 are on the front: fast" in view.words.value and "56.039" in view.code.value
    assert type(view.figure) is go.Figure
    names = {"points": POINTS, "priced": priced, "figure_pareto": figure_pareto}
    drawn = eval(view.in_code().removeprefix("show"), names)
    assert [list(trace.x) for trace in drawn.data] == [list(trace.x) for trace in view.figure.data]


def test_electricity_that_is_free_leaves_an_hour_a_price():
    assert prices(POINTS, usd_per_kwh=0.0).usd_per_h.value == 0.01


def test_a_target_that_nobody_reaches_has_no_prices():
    with pytest.raises(UserError, match="no run of these devices reaches this target"):
        prices(POINTS.assign(time_s=math.inf, energy_j=math.inf), usd_per_kwh=0.1)

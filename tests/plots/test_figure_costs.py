"""Costs over targets or batch sizes, and settings with their front: what is drawn, and said where nothing is."""

import math

import numpy as np
import pandas as pd
import pytest

from labkit.errors import UserError
from labkit.plots import describe, figure_costs, figure_pareto
from labkit_course.apparatus import on_front, priced

NAN, RECORDED = math.nan, "recorded, You et al. 2023"
COSTS = pd.DataFrame(
    [("A", 0.6, 1.0, 2.0), ("A", 0.4, 9.0, 8.0), ("B", 0.6, 3.0, NAN), ("B", 0.4, math.inf, NAN)],
    columns=["device", "target", "rent_usd", "purchase_usd"],
).assign(metric="wer", higher_is_better=False, provenance=RECORDED)
POINTS = pd.DataFrame(
    {"time_s": [3600.0, 7200.0, 7200.0, 360000.0], "energy_j": [7.2e6, 3.6e6, 7.2e6, 3.6e8]}, index=[3, 5, 7, 9]
).assign(device="V<100", provenance=RECORDED, setting=["fast", "thrifty", "neither", "far"])


def test_costs_have_a_panel_each_with_gaps_where_nobody_arrives_or_knows_a_price():
    figure = figure_costs(COSTS, ["rent_usd", "purchase_usd"])
    rents = figure.data[:2]
    assert [trace.name for trace in figure.data] == [f"A · {RECORDED}", f"B · {RECORDED}"] * 2
    assert [list(trace.x) for trace in rents] == [[0.4, 0.6]] * 2
    np.testing.assert_array_equal([trace.y for trace in rents], [[9, 1], [NAN, 3]])
    np.testing.assert_array_equal([trace.y for trace in figure.data[2:]], [[8, 2], [NAN, NAN]])
    assert [trace.marker.symbol for trace in rents] == ["circle-open", "square-open"]
    assert [axis.title.text for axis in figure.select_yaxes()] == ["Rent (US$)", "Share of the list price (US$)"]
    assert figure.layout.yaxis.type == "log" and figure.layout.xaxis2.title.text == "Target WER (harder to the right)"
    assert figure.layout.xaxis.autorange == "reversed", "errors fall"
    words = describe(figure)
    assert "Rent (US$) is least with A at 0.4, 0.6" in words.text and "Of B it is not known." in words.text
    assert list(words.table.columns) == ["series", "Target WER (harder to the right)", *words.table.columns[2:]]
    rising = figure_costs(COSTS.assign(metric="ndcg", higher_is_better=True), ["rent_usd"])
    assert rising.layout.xaxis.autorange is None


def test_over_the_batch_size_the_axis_is_logarithmic_and_each_device_has_its_least():
    sizes = COSTS.rename(columns={"target": "batch_size"}).assign(batch_size=[8, 32, 8, 32])
    figure = figure_costs(sizes, ["rent_usd"], x="batch_size")
    assert figure.layout.xaxis.type == "log" and figure.layout.xaxis.title.text == "Batch size (samples per step)"
    assert "least with A at 8; B at 8." in describe(figure).text


def test_the_front_is_a_line_among_faint_marks_and_what_was_chosen_is_starred():
    points = POINTS.assign(front=on_front(POINTS["time_s"], POINTS["energy_j"]))
    figure = figure_pareto(points, "time_s", "energy_j", chosen={"η = 1": 5})
    others = figure.data[0]
    names = [f"V&lt;100 · {RECORDED}", f"front of V&lt;100 · {RECORDED}", f"η = 1 · {RECORDED}"]
    assert [trace.name for trace in figure.data] == names
    texts = [list(trace.text) for trace in figure.data]
    assert texts == [["neither", "far"], ["fast", "thrifty"], ["thrifty"]]
    assert others.mode == "markers" and figure.data[1].mode == "lines+markers" and others.marker.opacity < 1
    assert all(trace.marker.symbol.endswith("-open") for trace in figure.data)
    assert figure.layout.xaxis.range[1] == pytest.approx(2 * 3600 * 1.8), "the far one is outside"
    assert figure.layout.xaxis.type is None
    assert "Of 4 settings of V<100 2 are on the front: fast (3600, 7,200,000) to thrifty" in describe(figure).text


def test_without_a_front_every_setting_is_a_mark_filled_where_it_was_measured():
    own = POINTS.iloc[:1].assign(provenance="time measured, energy predicted", device="DLRM here")
    figure = figure_pareto(pd.concat([POINTS, own]), "time_s", "energy_j")
    assert [trace.marker.symbol for trace in figure.data] == ["circle-open", "square"]
    assert "DLRM here: fast (" in describe(figure).text
    assert figure.layout.xaxis.type == "log", "over orders of magnitude"


def test_a_cost_that_nobody_knows_and_a_target_that_nobody_reaches_are_refused():
    with pytest.raises(UserError, match=r"^Share of the list price \(US\$\) of B is not known") as unknown:
        figure_costs(COSTS[COSTS["device"] == "B"], ["purchase_usd"])
    with pytest.raises(UserError, match=r"^no run of A, B reaches this target, at any cost") as unreached:
        figure_costs(COSTS.assign(rent_usd=math.inf), ["rent_usd"])
    for points in (POINTS.assign(time_s=math.inf), POINTS[:0]):
        with pytest.raises(UserError, match="reaches this target"):
            figure_pareto(points, "time_s", "energy_j")
    assert not any("\n" in str(error.value) for error in (unknown, unreached))


def test_prices_turn_time_and_energy_into_dollars_and_grams_with_a_front_of_their_own():
    free = priced(POINTS, usd_per_h=0.0, usd_per_kwh=0.1, g_per_kwh=400.0)
    assert list(free["cost_usd"].round(3)) == [0.2, 0.1, 0.2, 10.0] and list(free["carbon_g"]) == [800, 400, 800, 40000]
    assert list(free["front"]) == [False, True, False, False], "the least energy is best in both"
    dear = priced(POINTS, usd_per_h=1.0, usd_per_kwh=0.1, g_per_kwh=400.0)
    assert list(dear["front"]) == [True, True, False, False]
    assert on_front([1.0, 1.0, 1.0], [2.0, 2.0, 3.0]) == [True, True, False]

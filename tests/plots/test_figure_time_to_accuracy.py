import numpy as np
import pandas as pd
import pytest
from made_up import made_up, together

from labkit.plots import describe, figure_time_against_target, figure_time_to_accuracy
from labkit.plots.time_to_target import value_axis
from labkit.tta import band, crossings, survival


def synthetic(metric="auc", **more):
    """Two seeds under each of two budgets, one twice as fast; values rise to 0.8, or fall to 0.02."""
    share = np.arange(1, 21) / 20
    values = [0.5 + 0.3 * share if metric == "auc" else 0.02**share] * 2
    slow = {"budget": "one-core", "provenance": "emulated"} | more
    return together(
        made_up(values, metric=metric, every_s=[1.0, 1.05], **slow),
        made_up(values, metric=metric, every_s=[0.5, 0.525], **more),
    )


@pytest.fixture(scope="module")
def figure():
    curves, runs = synthetic()
    hits, times = crossings(curves, runs, 0.75), survival(curves, runs, 0.75)
    bands = band(survival(curves, runs, np.linspace(0.52, 0.8, 20)))
    return figure_time_to_accuracy(curves, 0.75, crossings=hits, survival=times, bands=bands)


def traces(figure, kind):
    return [trace for trace in figure.data if trace.meta["kind"] == kind]


def test_one_curve_a_run_one_band_and_one_legend_entry_a_budget_each_with_looks_of_its_own(figure):
    one, several = traces(figure, "run")
    # of each run the twenty evaluations, and a gap before the next
    assert (len(one.x), np.isnan(one.x).sum(), one.meta["curves"]) == (41, 1, 2) and np.isnan(several.y[20])
    assert one.line.color != several.line.color
    assert one.line.dash != several.line.dash and one.marker.symbol != several.marker.symbol
    assert len(traces(figure, "band")) == 2
    named = [trace.name for trace in figure.data if trace.showlegend is not False]
    assert named == ["one-core · emulated", "all-cores · measured"]


def test_first_crossings_and_medians_are_marked_where_the_analysis_finds_them(figure):
    reached = traces(figure, "reached")
    assert list(reached[0].x) == pytest.approx([17.0, 17.85]) and min(reached[0].y) >= 0.75
    assert traces(figure, "median")[0].x[0] == pytest.approx((17 + 17.85) / 2)
    assert figure.layout.shapes[0].y0 == 0.75


def test_axes_have_titles_with_units_and_hover_names_seconds_samples_and_seed(figure):
    assert figure.layout.xaxis.title.text.endswith("(s)")
    assert figure.layout.yaxis.title.text == "AUC on the validation split"
    trace = traces(figure, "run")[0]
    assert all(word in trace.hovertemplate for word in ("s wall time", "seed %{customdata[2]}", "AUC"))
    assert trace.customdata[0][1].endswith(" samples")
    assert [trace.customdata[at][2] for at in (0, 20, 21)] == ["0", None, "1"]
    assert trace.customdata[20][0] is None, "a notebook's messages have no NaN"


def test_the_start_at_chance_level_does_not_squash_the_rest_and_error_rates_are_logarithmic_unless_one_is_zero():
    axis = value_axis(pd.Series([0.5, 0.51, 0.52, *np.linspace(0.75, 0.79, 12)]), 0.78, "auc")
    assert axis.at(0) > 0.7 and axis.at(1) > 0.79 and not axis.log
    assert value_axis(pd.Series(np.linspace(0.7, 0.8, 20)), 0.75, "auc").at(0) < 0.7
    assert value_axis(pd.Series([1.0, 0.1, 0.02]), 0.05, "cer").log
    assert not value_axis(pd.Series([1.0, 0.1, 0.0]), 0.05, "cer").log


def test_the_x_axis_can_be_samples_and_names_from_a_run_cannot_become_markup():
    figure = figure_time_to_accuracy(synthetic(budget="<img src=x onerror=alert(1)>")[0], 0.75, x="samples")
    assert "samples" in figure.layout.xaxis.title.text and np.nanmax(traces(figure, "run")[0].x) == 2100
    assert all("<img" not in (trace.name or "") for trace in figure.data)


def test_describe_tells_type_axes_series_and_finding(figure):
    text = describe(figure).text
    assert text.startswith("Line chart. Horizontal axis: Wall time, evaluation included (s), from 0 to ")
    assert "one-core · emulated (2 curves), all-cores · measured (2 curves)" in text
    assert "range of 2 runs" in text
    assert "all cores 8.7 s (2 of 2 runs); one core 17.4 s (2 of 2 runs)" in text
    text = describe(figure_time_to_accuracy(synthetic("cer")[0], 0.05)).text
    assert "from 0.01 to 0.9" in text and "logarithmic" in text, "values, not exponents"


def test_harder_targets_lie_to_the_right_for_rising_and_falling_metrics():
    for metric, up, targets in (("auc", True, [0.6, 0.7, 0.9]), ("cer", False, [0.5, 0.1, 0.001])):
        times = survival(*synthetic(metric), targets)
        figure = figure_time_against_target(times, targets[1], metric=metric, higher_is_better=up)
        left, right = figure.layout.xaxis.range
        assert (left < right) == up
        assert np.isnan(traces(figure, "run")[0].y).sum() == 1  # the hardest is not reached: the line ends
        assert "the hardest it reaches" in describe(figure).text

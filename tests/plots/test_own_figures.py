"""Descriptions and colours of figures; alignments, costs and times to a target."""

import math
import re

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from made_up import made_up, together
from plotly.subplots import make_subplots

from labkit.errors import UserError
from labkit.plots import describe, figure_costs, figure_pareto, figure_time_against_target, figure_time_to_accuracy
from labkit.plots.descriptions import SHOWN_ROWS, show, thinned
from labkit.plots.theme import BACKGROUNDS, INK, PALETTES, encoding
from labkit.plots.time_to_target import value_axis
from labkit.plots.timelines import MOST_COLUMNS, RANGE_DB, figure_alignment
from labkit.tta import band, crossings, survival

OKABE_ITO = {"#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7"}


def contrast(first: str, second: str) -> float:
    """WCAG 2.2's contrast of two #rrggbb colours, 1 to 21."""

    def luminance(color: str) -> float:
        channels = (int(color[at : at + 2], 16) / 255 for at in (1, 3, 5))
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_the_table_has_every_point_under_the_axes_titles_but_no_decoration():
    figure = go.Figure(go.Scatter(x=[1, 2], y=[0.5, 0.7], name="one-core · measured"))
    figure.add_scatter(x=[1], y=[0.6], name="one-core · measured")
    figure.add_scatter(x=[0], y=[9], name="band", hoverinfo="skip")
    figure.update_xaxes(title_text="Time (s)").update_yaxes(title_text="AUC")
    assert describe(figure).table.to_dict("list") == {
        "series": ["one-core · measured", "one-core · measured", "one-core · measured (2)"],
        "Time (s)": [1, 2, 1],
        "AUC": [0.5, 0.7, 0.6],
    }


def test_panels_have_their_own_axes():
    figure = make_subplots(cols=2)
    figure.add_scatter(x=[1], y=[2], name="left", row=1, col=1).add_scatter(x=[1], y=[3], name="right", row=1, col=2)
    figure.update_yaxes(title_text="AUC", col=1).update_yaxes(title_text="Memory (GiB)", col=2)
    description = describe(figure)
    assert description.table["Memory (GiB)"].tolist()[1:] == [3]
    assert "Line chart in 2 panels. Panel 1. Horizontal axis from 1 to 1. Vertical axis: AUC," in str(description)


def test_long_series_are_thinned_in_the_notebook_only():
    figure = go.Figure(go.Scatter(x=list(range(500)), y=list(range(500)), name="<b>long</b>"))
    description = describe(figure)
    html = description._repr_mimebundle_()["text/html"]
    assert len(description.table) == 500
    assert html.count("<tr>") == SHOWN_ROWS and "(12 of 500 rows)" in html and ">499<" in html
    assert "<b>long" not in html
    assert thinned(pd.DataFrame({"x": np.arange(101)}), 5)["x"].tolist() == [0, 25, 50, 75, 100]


def test_show_is_offline_and_describes(monkeypatch, capsys):
    configs = []
    monkeypatch.setattr(go.Figure, "show", lambda figure, config: configs.append(config))
    show(go.Figure(go.Bar(x=["a", "b"], y=[1, 3], name="time · measured")))
    assert configs[0]["plotlyServerURL"] == ""
    assert "sendChartToCloud" in configs[0]["modeBarButtonsToRemove"]
    assert "Bar chart" in capsys.readouterr().out


@pytest.mark.parametrize("template", PALETTES)
def test_every_colour_is_okabe_and_ito_and_reaches_3_to_1_on_its_background_and_text_7_to_1(template):
    for color in PALETTES[template]:
        assert color in OKABE_ITO
        # the ratio as WCAG tools print it, with two decimals: #CC79A7 on white is 3.00
        assert round(contrast(color, BACKGROUNDS[template]), 2) >= 3
    assert contrast(INK[template], BACKGROUNDS[template]) >= 7


def test_thirty_series_all_look_different_and_the_first_five_without_colour():
    looks = [encoding(index) for index in range(30)]
    assert len({(look.color, look.dash, look.marker) for look in looks}) == 30
    assert len({(look.dash, look.marker) for look in looks[:5]}) == 5


HEARD = pd.DataFrame({"character": list("a <"), "start_s": [0.2, 0.4, 0.6], "end_s": [0.3, 0.44, 1.0]})


def sound(frames: int) -> np.ndarray:
    """Log-mel energies of a loud second among quiet ones."""
    energies = np.full((frames, 80), -13.0)
    energies[100:200] = 0.0
    return energies


def test_characters_stand_above_the_spectrogram_at_their_times():
    figure = figure_alignment(sound(300), HEARD)
    heat, spans, text = figure.data
    assert (heat.type, text.mode, spans.hoverinfo) == ("heatmap", "text", "skip")
    assert np.asarray(heat.z).shape == (80, 300) and heat.x[-1] == 2.99
    assert (np.min(heat.z), np.max(heat.z)) == (-56, 0) and -RANGE_DB < -56  # 13 / ln(10) * 10 dB
    assert list(text.text) == ["a", "␣", "&lt;"]
    assert list(text.x) == pytest.approx([0.25, 0.42, 0.8])
    assert list(spans.x) == [0.2, 0.3, None, 0.4, 0.44, None, 0.6, 1.0, None]
    assert min(text.y) > 80 and figure.layout.yaxis.range[1] > max(text.y)
    assert "(s)" in figure.layout.xaxis.title.text and "kHz" in figure.layout.yaxis.title.text
    assert all("· measured" in trace.name for trace in (heat, text))
    assert describe(figure).table["text"].dropna().tolist() == ["a", "␣", "<"]
    assert "“a <” was heard from 0.20 s to 1.00 s, in 3 characters, of 3.00 s" in describe(figure).text


def test_a_long_recording_makes_no_larger_figure():
    long = figure_alignment(sound(60_000), HEARD)
    assert np.asarray(long.data[0].z).shape[1] == MOST_COLUMNS
    assert np.max(long.data[0].z[0][1:2]) == np.max(long.data[0].z), "the second second is the loud one"
    assert len(long.to_json()) < 100_000


def test_nothing_heard_is_said():
    figure = figure_alignment(sound(50), HEARD.iloc[:0])
    assert "Nothing was heard in 0.50 s" in describe(figure).text


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
    points = POINTS.assign(front=[True, True, False, False])
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


def test_a_table_has_its_texts_on_the_left_one_row_of_headings_and_no_count_of_rows(monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda output, **_: shown.append(output.data))
    show(pd.DataFrame({"what": ["a<b", None], "ms": [0.0123456, float("nan")]}))
    show(pd.DataFrame({"ms": [1.0]}, index=pd.Index([16], name="batch")).rename_axis(columns="tier"))
    plain, named = shown
    assert "overflow-x: auto" in plain
    assert ".col0 {\n  text-align: left" in plain
    assert ".col1 {" not in plain
    cells = re.compile(r"<t[dh][^>]*>(.*?)</t[dh]>")
    assert cells.findall(plain) == ["what", "ms", "a&lt;b", "0.0123", "–", "–"]
    assert cells.findall(named) == ["batch", "ms", "16", "1"]

"""Figures of collocation: marks with intervals, bars with times, titles, provenance, a second encoding and words."""

import numpy as np
import pandas as pd
import pytest

from labkit.plots.describe import describe
from labkit.plots.job_timelines import figure_job_timelines
from labkit.plots.queue_gantt import figure_queue
from labkit.plots.throughput_slowdown import figure_gain_against_slowdown

NAN = np.nan
MODES = pd.DataFrame(
    [
        ("dlrm:tour", "alone", 2, 1.0, 0.95, 1.05, 1.0, 0.95, 1.05),
        ("dlrm:tour", "naive", 2, 1.4, 1.3, 1.5, 1.5, 1.4, 1.6),
        ("dlrm:tour", "naive", 4, 0.9, NAN, NAN, 4.6, NAN, NAN),
        ("dlrm:tour", "mps", 2, 1.7, 1.6, 1.9, 1.2, 1.1, 1.3),
        ("dlrm:tour", "mig", 2, NAN, NAN, NAN, NAN, NAN, NAN),
    ],
    columns=["family", "mode", "jobs", "gain", "gain_low", "gain_high", "slowdown", "slowdown_low", "slowdown_high"],
).assign(provenance="recorded")
TIMELINES = pd.DataFrame(
    [
        ("alone", "quick", 0.0, 11.0, 6.0, True),
        ("alone", "slow<b>", 11.0, 33.0, 26.0, True),
        ("naive", "quick", 0.0, 13.0, 7.5, True),
        ("naive", "slow<b>", 0.0, 28.0, NAN, True),
    ],
    columns=["mode", "job", "starts_s", "ends_s", "reached_s", "has_target"],
).assign(status="done", provenance="measured")
QUEUE = pd.DataFrame(
    [
        ("a", "GPU 0", 0.0, 10.0, 1, "done"),
        ("b", "GPU 0", 5.0, 8.0, 1, "out of memory"),
        ("b", "GPU 0", 10.0, 20.0, 2, "done"),
        ("c", "GPU 1", 0.0, 4.0, 1, "done"),
        ("d", "GPU 1", 4.0, NAN, 1, None),
    ],
    columns=["job", "device", "starts_s", "ends_s", "attempt", "ending"],
)


@pytest.mark.parametrize(
    ("figure", "provenance", "title"),
    [
        (figure_gain_against_slowdown(MODES), "recorded", "Mean slowdown"),
        (figure_job_timelines(TIMELINES), "measured", "(s)"),
        (figure_queue(QUEUE, provenance="predicted"), "predicted", "(s)"),
    ],
    ids=["gain", "timelines", "queue"],
)
def test_each_figure_has_titles_provenance_and_words(figure, provenance, title):
    assert title in figure.layout.xaxis.title.text and figure.layout.yaxis.title.text
    assert figure.layout.showlegend is not False
    assert all(provenance in trace.name for trace in figure.data if trace.hoverinfo != "skip")
    words = describe(figure)
    assert words.text.endswith(".") and "Horizontal axis" in words.text
    assert len(words.table) > 0


def test_gain_has_a_mark_a_mode_and_number_of_jobs_with_its_intervals():
    figure = figure_gain_against_slowdown(MODES)
    marks = {trace.name: trace for trace in figure.data if trace.hoverinfo != "skip"}
    assert list(marks) == ["alone · recorded", "naive · recorded", "mps · recorded"], (
        "what was not measured has no mark"
    )
    naive = marks["naive · recorded"]
    assert (list(naive.x), list(naive.y), list(naive.text)) == ([1.5, 4.6], [1.4, 0.9], ["2", "4"])
    mps = marks["mps · recorded"]
    assert list(mps.error_y.array) == pytest.approx([0.2]) and list(mps.error_y.arrayminus) == pytest.approx([0.1])
    assert len({trace.marker.symbol for trace in marks.values()}) == len({t.marker.color for t in marks.values()}) == 3
    assert [line.y0 for line in figure.layout.shapes] == [1] and figure.layout.annotations[0].text == "no gain"
    curves = [trace for trace in figure.data if trace.hoverinfo == "skip"]
    assert [set(np.round(np.multiply(curve.x, curve.y), 6)) for curve in curves] == [{2.0}, {4.0}]
    assert "mps with 2 jobs (dlrm:tour) gains most: 1.70 times the work, 95 % interval 1.60 to 1.90" in str(
        describe(figure)
    )
    assert "1 of 3 ways of sharing lose" in str(describe(figure))


def test_an_interval_of_few_repeats_does_not_hide_the_others():
    figure = figure_gain_against_slowdown(MODES.assign(gain_high=60.0))
    assert list(figure.layout.yaxis.range) == pytest.approx([0, 1.5 * 1.7])


def test_families_are_told_apart_where_there_are_several():
    both = pd.concat([MODES, MODES.assign(family="dlrm:small")])
    names = [trace.name for trace in figure_gain_against_slowdown(both).data]
    assert "naive, dlrm:small · recorded" in names and "naive, dlrm:tour · recorded" in names


def test_timelines_lie_where_the_jobs_ran_and_mark_their_targets():
    figure = figure_job_timelines(TIMELINES)
    quick, slow, reached, short = figure.data
    assert (list(quick.base), list(quick.x)) == ([0, 0], [11, 13])
    assert (list(slow.base), list(slow.x), list(slow.y)) == (
        [11, 0],
        [22, 28],
        ["alone: slow&lt;b&gt;", "naive: slow&lt;b&gt;"],
    )
    assert quick.marker.pattern.shape != slow.marker.pattern.shape
    assert list(reached.x) == [6, 26, 7.5]
    assert (list(short.x), list(short.y)) == ([28], ["naive: slow&lt;b&gt;"])
    assert figure.layout.yaxis.categoryarray[-1] == "alone: quick"
    words = str(describe(figure))
    assert "alone after 33.0 s; naive after 28.0 s; 1 ended short of their target." in words


def test_a_queue_gives_each_job_at_once_a_line_of_its_device():
    figure = figure_queue(QUEUE, provenance="predicted")
    bars = {trace.name: trace for trace in figure.data}
    first, again, full = (
        bars[f"{kind} · predicted"] for kind in ("first attempt", "another attempt", "ran out of memory")
    )
    assert list(first.y) == ["GPU 0 · 1", "GPU 1 · 1"]
    assert (list(full.y), list(full.base), list(full.x)) == (["GPU 0 · 2"], [5], [3])
    assert list(again.y) == ["GPU 0 · 1"], "a line is free again when its job has ended"
    assert len({trace.marker.pattern.shape for trace in bars.values()}) == 3
    words = str(describe(figure))
    assert "3 jobs on 2 devices end after 20.0 s; up to 2 at once on one device; 1 attempts ran out of memory" in words


def test_figures_are_drawn_in_the_dark_too():
    for figure in (figure_gain_against_slowdown, figure_job_timelines):
        frame = MODES if figure is figure_gain_against_slowdown else TIMELINES
        assert figure(frame, template="labkit_dark").layout.template.layout.paper_bgcolor == "#16191f"

"""Figures of steps: bars that say where their time goes, with titles, provenance and a finding."""

import pandas as pd
import pytest

from labkit.plots.describe import describe
from labkit.plots.memory_held import figure_memory_held
from labkit.plots.step_bars import figure_icicle, figure_phases, figure_timeline

PHASES = pd.DataFrame(
    {"step": ["slow", "slow", "quick"], "phase": ["input", "forward", "forward"], "time_ms": [3.0, 1.0, 1.0]}
)
TREE = pd.DataFrame(
    {
        "node": [0, 1, 2],
        "parent": [-1, 0, 1],
        "name": ["step", "forward", "aten::mm"],
        "phase": ["other", "forward", "forward"],
        "depth": [0, 1, 2],
        "calls": [1.0, 1.0, 2.0],
        "total_us": [1000.0, 800.0, 700.0],
        "self_us": [200.0, 100.0, 700.0],
        "begin_us": [0.0, 0.0, 0.0],
    }
)
EVENTS = pd.DataFrame(
    {
        "lane": ["thread 1", "thread 1, level 1", "GPU 0 stream 7"],
        "kind": ["annotation", "operator", "kernel"],
        "name": ["step", "aten::mm", "sgemm<b>"],
        "start_us": [0.0, 100.0, 200.0],
        "duration_us": [1000.0, 300.0, 700.0],
    }
)
HELD = pd.DataFrame({"time_us": [0.0, 1000.0, 2000.0], "device": [-1, -1, -1], "held_bytes": [0, 2**20, 0]})


@pytest.mark.parametrize(
    "figure",
    [figure_phases(PHASES), figure_icicle(TREE), figure_timeline(EVENTS), figure_memory_held(HELD)],
    ids=["phases", "icicle", "timeline", "memory"],
)
def test_each_figure_has_titles_provenance_and_a_finding(figure):
    assert figure.layout.xaxis.title.text.endswith("(ms)")
    assert figure.layout.yaxis.title.text
    assert all("measured" in trace.name for trace in figure.data)
    words = describe(figure)
    assert words.text.endswith(".") and "Horizontal axis" in words.text
    assert len(words.table) > 0


def test_phases_stack_up_and_say_which_is_the_largest():
    figure = figure_phases(PHASES)
    assert figure.layout.barmode == "stack"
    assert "slow takes 4 ms, most of it input (75%)" in describe(figure).text


def test_a_phase_looks_the_same_in_every_figure():
    forward = [
        trace.marker.color
        for figure in (figure_phases(PHASES), figure_icicle(TREE))
        for trace in figure.data
        if trace.name.startswith("forward")
    ]
    assert len(forward) == 2 and len(set(forward)) == 1


def test_the_icicle_lies_below_its_callers():
    (mm,) = [trace for trace in figure_icicle(TREE).data if trace.name.startswith("forward")]
    assert list(mm.y) == [1, 2] and list(mm.base) == [0, 0] and list(mm.x) == [0.8, 0.7]
    assert "aten::mm in forward" in describe(figure_icicle(TREE)).text


def test_names_are_escaped_and_streams_come_below_threads():
    figure = figure_timeline(EVENTS)
    (kernel,) = [trace for trace in figure.data if trace.name.startswith("kernel")]
    assert kernel.text == ("sgemm&lt;b&gt;",)
    assert figure.layout.yaxis.categoryarray == ("GPU 0 stream 7", "thread 1, level 1", "thread 1")


def test_memory_names_its_peak():
    assert "host holds most, 1 MiB, after 1 ms" in describe(figure_memory_held(HELD)).text

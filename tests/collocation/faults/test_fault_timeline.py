"""The figure of a fault: a line a client, and where one failed and was gone."""

from __future__ import annotations

import pandas as pd

from labkit.plots.fault_timeline import figure_fault_timeline

STEPS = pd.DataFrame(
    {
        "job": ["faulty"] * 4 + ["neighbour-1"] * 4,
        "at_s": [-0.5, -0.1, 0.5, 1.5] * 2,
        "steps_per_s": [10.0, 10.0, 0.0, 0.0, 10.0, 12.0, 5.0, 20.0],
        "provenance": "measured",
    }
)


def test_each_client_has_a_line_and_the_finding_has_the_rates():
    figure = figure_fault_timeline(STEPS, gone_s=1.0)
    assert [trace.name for trace in figure.data] == ["faulty · measured", "neighbour-1 · measured"]
    assert list(figure.data[1].y) == [10.0, 12.0, 5.0, 20.0]
    assert len({(trace.line.color, trace.line.dash, trace.marker.symbol) for trace in figure.data}) == 2
    assert figure.layout.xaxis.title.text == "Time since the fault (s)"
    assert figure.layout.yaxis.title.text == "Steps per second"
    assert [shape.x0 for shape in figure.layout.shapes] == [0.0, 1.0]
    assert [note.text for note in figure.layout.annotations] == ["fault", "gone"]
    finding = figure.layout.meta["finding"]
    assert "neighbour-1: 11 steps/s before, 5 until the client was gone, 20 after" in finding
    at_once = figure_fault_timeline(STEPS, gone_s=0.01).layout.meta["finding"]
    assert "neighbour-1: 11 steps/s before, 12 after" in at_once  # no time in between
    named = figure_fault_timeline(STEPS.assign(job="<b>x"), gone_s=1.0)
    assert "<b>" not in named.data[0].name + named.layout.meta["finding"]

"""Every figure of a frame: titles with units, provenance, a second encoding, a finding; and what each one draws."""

import numpy as np
import pandas as pd
import pytest

from labkit.plots import describe, new_figure
from labkit.plots.comparisons import figure_sweep
from labkit.plots.descriptions import legend_below_title
from labkit.plots.timelines import figure_icicle, figure_memory_held, figure_phases, figure_timeline
from labkit_course.apparatus import (
    figure_budget_shares,
    figure_busy,
    figure_gain_against_slowdown,
    figure_gains,
    figure_kernel_shapes,
    figure_observer_effect,
    figure_queue,
)
from labkit_course.apparatus.figures import COUNTERS
from labkit_course.apparatus.sharing_figures import AGAIN, FIRST, FULL

NAN = np.nan


def frame(columns, *rows, **more):
    return pd.DataFrame(rows, columns=columns.split()).assign(**more)


SHARES = frame(
    "budget quantity share provenance",
    ("one-core", "arithmetic", 60.0, "emulated"),
    ("one-core", "arithmetic", 50.0, "predicted"),
    ("one-core", "bandwidth", 90.0, "emulated"),
    ("jetson-nano-like", "arithmetic", 99.0, "emulated"),
    ("jetson-nano-like", "bandwidth", 97.0, "emulated"),
)
BUSY = frame(
    "load cpu_percent share_of_peak share_of_bandwidth gpu_utilisation sm_active sm_occupancy provenance",
    ("chase", 99.0, 0.0, 1.0, NAN, NAN, NAN, "measured"),
    ("product", 98.0, 90.0, 20.0, NAN, NAN, NAN, "measured"),
    ("1 × 1", NAN, NAN, NAN, 91.0, 0.2, 0.0, "recorded, somewhere"),
)
SHAPES = frame(
    "blocks threads gpu_utilisation graphics_active sm_active sm_occupancy",
    (1, 1, 91.0, 90.9, 0.2, 0.0),
    (131072, 1, 100.0, 99.9, 29.2, 1.4),
    (131072, 1024, 100.0, 100.0, 99.5, 78.2),
    provenance="recorded<b>, somewhere",
)
GAINS = frame("change measured at_most", ("<fused>", 1.5, 1.8), ("bf16", 2.0, NAN))
EFFECTS = frame(
    "observer ratio low high load provenance",
    ("sampler", 1.0, 0.98, 1.02, "light", "measured"),
    ("profiler", 1.2, 1.15, 1.25, "light", "measured"),
    ("nsys", 1.02, 0.99, 1.03, "MNIST", "published, somewhere"),
)
MODES = frame(
    "mode jobs gain gain_low gain_high slowdown slowdown_low slowdown_high",
    ("alone", 2, 1.0, 0.95, 1.05, 1.0, 0.95, 1.05),
    ("naive", 2, 1.4, 1.3, 1.5, 1.5, 1.4, 1.6),
    ("naive", 4, 0.9, NAN, NAN, 4.6, NAN, NAN),
    ("mps", 2, 1.7, 1.6, 1.9, 1.2, 1.1, 1.3),
    ("mig", 2, *[NAN] * 6),
    family="dlrm:tour",
    provenance="recorded",
)
QUEUE = frame(
    "job device starts_s ends_s attempt ending",
    ("a", "GPU 0", 0.0, 10.0, 1, "done"),
    ("b", "GPU 0", 5.0, 8.0, 1, "out of memory"),
    ("b", "GPU 0", 10.0, 20.0, 2, "done"),
    ("c", "GPU 1", 0.0, 4.0, 1, "done"),
    ("d", "GPU 1", 4.0, NAN, 1, None),
)
PHASES = frame("step phase time_ms", ("slow", "input", 3.0), ("slow", "forward", 1.0), ("quick", "forward", 1.0))
TREE = frame(
    "name phase depth calls total_us self_us begin_us",
    ("step", "other", 0, 1.0, 1000.0, 200.0, 0.0),
    ("forward", "forward", 1, 1.0, 800.0, 100.0, 0.0),
    ("aten::mm", "forward", 2, 2.0, 700.0, 700.0, 0.0),
)
EVENTS = frame(
    "lane kind name start_us duration_us",
    ("thread 1", "annotation", "step", 0.0, 1000.0),
    ("thread 1, level 1", "operator", "aten::mm", 100.0, 300.0),
    ("GPU 0 stream 7", "kernel", "sgemm<b>", 200.0, 700.0),
)
HELD = frame("time_us device held_bytes", (0.0, -1, 0), (1000.0, -1, 2**20), (2000.0, -1, 0))
SWEPT = frame(
    "lr samples_per_s budget provenance",
    (0.1, 100.0, "one<b>", "emulated"),
    (0.1, 120.0, "one<b>", "emulated"),
    (1.0, 150.0, "one<b>", "emulated"),
    (1.0, 300.0, "all", "measured"),
)

FIGURES = {
    "shares": (figure_budget_shares(SHARES), "Budget", "one-core: 60 % of the arithmetic and 90 % of the bandwidth"),
    "busy": (figure_busy(BUSY), "What runs", "of the two other bars from 0.2 % (1 × 1) to 90 % (p"),
    "gains": (figure_gains(GAINS), "What was changed", "bf16 gained most: 2 times as fast; all together 3 times."),
    "observers": (figure_observer_effect(EFFECTS), "(ratio", "profiler costs the most: 1.20 times as long on the"),
    "gain": (figure_gain_against_slowdown(MODES), "Mean slowdown", "mps with 2 jobs (dlrm:tour) gains most: 1.70"),
    "queue": (figure_queue(QUEUE, provenance="predicted"), "(s)", "3 jobs on 2 devices end after 20.0 s; up to 2"),
    "phases": (figure_phases(PHASES), "(ms)", "slow takes 4 ms, most of it input (75%)"),
    "icicle": (figure_icicle(TREE), "(ms)", "aten::mm in forward"),
    "timeline": (figure_timeline(EVENTS), "(ms)", "3 events on 3 lines"),
    "swept": (
        figure_sweep(SWEPT, "lr", "samples_per_s", "budget"),
        "lr",
        "is greatest at budget all, lr 1: 300; least",
    ),
    "memory": (figure_memory_held(HELD), "(ms)", "host holds most, 1 MiB, after 1 ms"),
}


def marks(name):
    return {trace.name: trace for trace in FIGURES[name][0].data if trace.hoverinfo != "skip"}


@pytest.mark.parametrize("name", FIGURES)
def test_each_figure_has_titles_provenance_a_second_encoding_and_words(name):
    figure, title, finding = FIGURES[name]
    assert title in figure.layout.xaxis.title.text and figure.layout.yaxis.title.text
    kinds = ("measured", "emulated", "recorded", "predicted", "published")
    assert all(any(f"· {kind}" in trace for kind in kinds) for trace in marks(name))
    traces = marks(name).values()
    looks = {
        (trace.marker.pattern.shape, trace.marker.pattern.fillmode) if trace.type == "bar" else trace.marker.symbol
        for trace in traces
    }
    assert len(looks) == len(traces), "told apart by more than colour"
    words = describe(figure)
    assert finding in words.text and words.text.endswith(".") and "Horizontal axis" in words.text
    assert len(words.table) > 0 and "<b>" not in figure.to_json()


def test_found_and_predicted_shares_stand_side_by_side():
    bars = {name: dict(zip(trace.x, trace.y, strict=True)) for name, trace in marks("shares").items()}
    assert bars == {
        "arithmetic · emulated": {"one-core": 60, "jetson-nano-like": 99},
        "arithmetic · predicted": {"one-core": 50},
        "bandwidth · emulated": {"one-core": 90, "jetson-nano-like": 97},
    }


def test_a_core_and_a_gpu_stand_side_by_side_the_recorded_one_hollow():
    bars = marks("busy")
    assert [list(trace.y) for trace in bars.values()] == [[99, 98], [0, 90], [1, 20], [91], [0.2], [0]]
    assert next(iter(bars)) == "utilisation of the core · measured" and "SM activity · recorded, somewhere" in bars
    assert [trace.marker.pattern.fillmode for trace in bars.values()] == ["overlay"] * 3 + ["replace"] * 3
    assert [trace.offsetgroup for trace in bars.values()] == ["0", "1", "2"] * 2, "three places a load"


def test_shapes_of_a_kernel_are_a_heat_map_a_counter_with_gaps_where_none_was_tried():
    figure = figure_kernel_shapes(SHAPES)
    assert [trace.name for trace in figure.data] == [f"{t} · recorded&lt;b&gt;, somewhere" for t in COUNTERS.values()]
    (axes,) = {(tuple(trace.x), tuple(trace.y)) for trace in figure.data}
    assert axes == (("1", "1,024"), ("1", "131,072"))
    np.testing.assert_array_equal(figure.data[2].z, [[0.2, NAN], [29.2, 99.5]])
    words = describe(figure)
    assert "SM activity is as low as 29.2 % (131,072 blocks of 1 threads)" in words.text
    assert "Horizontal axis: Threads a block" in words.text and len(words.table) == 4 * 2
    assert (
        figure.layout.title.text.endswith("down to 0.2 %<br>recorded&lt;b&gt;, somewhere") and figure.data[0].xgap == 4
    )
    assert figure.layout.annotations[2].text == "SM activity: 0 to 100 %"
    assert figure.layout.coloraxis.cmin == 0 and figure.layout.coloraxis.cmax == 100
    assert figure_kernel_shapes(SHAPES.assign(provenance="measured")).data[0].xgap == 0


def test_each_observer_has_a_mark_and_an_interval_and_names_its_source():
    light, _ = marks("observers").values()
    assert list(marks("observers")) == ["light · measured", "MNIST · published, somewhere"]
    assert list(light.y) == ["sampler", "profiler"] and list(light.x) == [1.0, 1.2]
    assert list(light.error_x.array.round(3)) == [0.02, 0.05] == list(light.error_x.arrayminus.round(3))


def test_gain_has_a_mark_a_mode_and_number_of_jobs_with_its_intervals():
    figure, found = FIGURES["gain"][0], marks("gain")
    assert list(found) == ["alone · recorded", "naive · recorded", "mps · recorded"], "what was not measured has none"
    naive, mps = found["naive · recorded"], found["mps · recorded"]
    assert (list(naive.x), list(naive.y), list(naive.text)) == ([1.5, 4.6], [1.4, 0.9], ["2", "4"])
    assert list(mps.error_y.array) == pytest.approx([0.2]) and list(mps.error_y.arrayminus) == pytest.approx([0.1])
    curves = [trace for trace in figure.data if trace.hoverinfo == "skip"]
    assert [set(np.round(np.multiply(curve.x, curve.y), 6)) for curve in curves] == [{2.0}, {4.0}]
    wide = figure_gain_against_slowdown(MODES.assign(gain_high=60.0))
    assert list(wide.layout.yaxis.range) == pytest.approx([0, 1.5 * 1.7]), "one interval does not hide the others"


def test_a_queue_gives_each_job_at_once_a_line_of_its_device():
    first, full, again = (marks("queue")[f"{kind} · predicted"] for kind in (FIRST, FULL, AGAIN))
    assert list(first.y) == ["GPU 0 · 1", "GPU 1 · 1"]
    assert (list(full.y), list(full.base), list(full.x)) == (["GPU 0 · 2"], [5], [3])
    assert list(again.y) == ["GPU 0 · 1"], "a line is free again when its job has ended"


def test_a_phase_looks_the_same_in_every_figure_calls_lie_below_callers_and_streams_below_threads():
    (bar,), (calls,) = (
        [t for t in FIGURES[name][0].data if t.name.startswith("forward")] for name in ("phases", "icicle")
    )
    assert bar.marker.color == calls.marker.color and list(bar.base) == [3, 0], "a phase after the other"
    assert list(calls.y) == ["1", "2"] and list(calls.base) == [0, 0] and list(calls.x) == [0.8, 0.7]
    assert FIGURES["timeline"][0].layout.yaxis.categoryarray == ("GPU 0 stream 7", "thread 1, level 1", "thread 1")


PARTS_MS, BY_PART = {"mlps": 2.0, "embeddings": 3.0}, {"x": "batch_size", "y": "time_ms", "color": "part"}


def test_a_value_measured_and_predicted_keeps_its_colour_and_differs_in_its_dash():
    kinds = ("measured", "predicted")
    rows = [(x, part, kind, x * y) for x in (1, 2) for kind in kinds for part, y in PARTS_MS.items()]
    figure = figure_sweep(pd.DataFrame(rows, columns=["batch_size", "part", "provenance", "time_ms"]), **BY_PART)
    looks = {trace.name: (trace.line.color, trace.marker.symbol, trace.line.dash) for trace in figure.data}
    assert set(looks) == {f"{part} · {kind}" for part in PARTS_MS for kind in kinds}
    for part in PARTS_MS:
        measured, predicted = looks[f"{part} · measured"], looks[f"{part} · predicted"]
        assert measured[:2] == predicted[:2] and measured[2] != predicted[2]
    assert looks["mlps · measured"][0] != looks["embeddings · measured"][0]


def test_a_title_stands_above_the_figure_and_its_legend_below():
    figure = new_figure("x", "y", "Rows are slow.")
    assert legend_below_title(figure) is figure
    titled = legend_below_title(figure.update_layout(title_text="Rows are slow"))
    title, legend = titled.layout.title, titled.layout.legend
    assert (title.text, title.x, legend.yanchor, legend.y < 0) == ("Rows are slow", 0, "top", True)

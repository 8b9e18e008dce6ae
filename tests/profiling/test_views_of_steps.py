"""Frames behind the views: the tree of calls, the timeline of a step, memory, and the comparison of two profiles."""

import numpy as np
import pandas as pd
import pytest
from kineto import event, note, shaped, steps, trace_of

from labkit.hardware.calibration import Calibration
from labkit.profiling.call_tree import call_tree
from labkit.profiling.comparison import compare
from labkit.profiling.profile import Profile, roofline_frames
from labkit.profiling.step_time import PYTHON, step_time
from labkit.profiling.traces.memory import alive_at_peak, memory_over_time
from labkit.profiling.traces.timeline import timeline

CARD = Calibration("some CPU", 2, 100.0, 250.0, 20.0, 1.0, "2026-11-22")


def a_step(begin, product=300, extra=()):
    return [
        note("forward", begin + 100, 500),
        event("aten::linear", begin + 110, product + 20),
        event("aten::mm", begin + 120, product),
        event("aten::linear", begin + 450, 100),
        event("aten::mm", begin + 460, 50),
        *(event(name, begin + 650, 100) for name in extra),
    ]


def test_the_tree_adds_up_calls_reached_in_the_same_way(tmp_path):
    tree = call_tree(step_time(trace_of(tmp_path, steps(4, 1000, a_step))))
    found = {row.name: (row.depth, row.calls, row.total_us, row.self_us) for row in tree.itertuples()}
    assert found == {
        "step": (0, 1, 1000, 0),
        "other": (1, 1, 500, 500),
        "forward": (1, 1, 500, 80),
        "aten::linear": (2, 2, 420, 70),
        "aten::mm": (3, 2, 350, 350),
    }
    inside = tree.set_index("node")
    for row in tree[tree["parent"] >= 0].itertuples():
        above = inside.loc[row.parent]
        assert above["begin_us"] <= row.begin_us
        assert row.begin_us + row.total_us <= above["begin_us"] + above["total_us"] + 1e-6


def test_a_timeline_has_the_lines_of_threads_and_streams(tmp_path):
    def content(begin):
        kernel = event("sgemm", begin + 200, 500, "kernel", tid="stream 7", pid=0, correlation=3)
        copy = event("Memcpy HtoD", begin + 50, 10, "gpu_memcpy", tid="stream 7", pid=0)
        return [*a_step(begin), kernel, copy, event("aten::copy_", begin + 10, 20, tid=2)]

    frame = timeline(trace_of(tmp_path, steps(3, 1000, content)))
    assert frame["start_us"].min() == 0
    assert set(frame["lane"]) == {
        "thread 1", "thread 1, level 1", "thread 1, level 2", "thread 1, level 3", "thread 2", "GPU 0 stream 7",
    }  # fmt: skip
    assert set(frame["kind"]) == {"annotation", "operator", "kernel", "copy or fill"}
    assert (frame["start_us"] + frame["duration_us"] <= 1000).all()


def memory(time, size, address, device=-1):
    args = {"Bytes": size, "Addr": address, "Device Id": device}
    return {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 9, "tid": 1, "ts": time, "args": args}


def test_tensors_alive_at_the_peak_add_up_to_it(tmp_path):
    step, calls = note("ProfilerStep#0", 0, 1000), [event("aten::linear", 100, 400), event("aten::mm", 200, 200)]
    took = ((150, 100, 1), (250, 1000, 2), (300, 50, 3), (350, -50, 3), (450, -100, 1), (600, 10, 1), (700, -1000, 2))
    trace = trace_of(tmp_path, [step, *calls, *(memory(*each) for each in took)])
    assert memory_over_time(trace)["held_bytes"].tolist() == [100, 1100, 1150, 1100, 1000, 1010, 10]
    alive = alive_at_peak(trace)
    assert alive["bytes"].tolist() == [1000, 100, 50]
    assert alive["operator"].tolist() == ["aten::mm in aten::linear", "aten::linear", "aten::mm in aten::linear"]
    assert alive["freed_us"].tolist() == [700, 450, 350]
    # what was freed of before the recording is a row of its own
    alive = alive_at_peak(trace_of(tmp_path, [step, memory(10, -300, 77), memory(20, 500, 2), memory(30, -500, 2)]))
    assert alive["bytes"].tolist() == [500, -300]


def profile_of(path, events):
    path.mkdir()
    facts = {"device": "cpu", "settings": {}, "phases_us": [{}] * 3, "unprofiled_step_us": []}
    profile = Profile(path, facts, CARD, "measured")
    profile.__dict__["trace"] = trace_of(path, events)
    return profile


def test_differences_of_operators_and_of_phases_add_up_to_that_of_the_step(tmp_path):
    before = profile_of(tmp_path / "a", steps(3, 1000, a_step))
    after = profile_of(tmp_path / "b", steps(3, 800, lambda begin: a_step(begin, product=100, extra=["aten::relu"])))
    difference = compare(before, after)
    assert difference.total_us == pytest.approx(-200)
    for frame in (difference.operators, difference.phases):
        assert frame["difference_us"].sum() == pytest.approx(-200)
        assert frame["after_us"].sum() == pytest.approx(800)
    by_name = difference.operators.set_index("operator")["difference_us"]
    assert by_name.to_dict() == pytest.approx({"aten::mm": -200, "aten::relu": 100, PYTHON: -100, "aten::linear": 0})
    assert difference.operators["operator"].iloc[0] == "aten::mm"  # the largest first
    assert "1.25 times as fast" in difference.headline()


def test_the_roofline_has_a_point_for_each_operator_that_multiplies(tmp_path):
    squares = [[64, 64], [64, 64]]
    calls = lambda begin: [shaped("aten::mm", begin, 500, squares), event("aten::view", begin + 600, 9)]  # noqa: E731
    events = steps(2, 1000, calls)
    roofs, marks = roofline_frames(profile_of(tmp_path / "a", events))
    assert roofs["peak_gflops"].tolist() == [100.0, 250.0]
    assert marks["name"].tolist() == ["aten::mm"]
    assert marks["gflops"].iloc[0] == pytest.approx(2 * 64**3 / 500 / 1e3)
    assert marks["flop_per_byte"].iloc[0] == pytest.approx(2 * 64**3 / (3 * 64 * 64 * 4))
    assert isinstance(marks, pd.DataFrame) and not np.isnan(marks["gflops"]).any()

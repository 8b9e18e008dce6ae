"""The slider of overheads shortens the step, redraws host and streams, and says the line that draws the same."""

import numpy as np

from labkit.perfmodel import TimedStep
from labkit.perfmodel.operators import Operator
from labkit.plots import figure_timeline
from labkit_course.apparatus import KINDS, overheads, own_step, walk_timeline
from labkit_course.apparatus.recorded_step import Call, Kernel, RecordedStep

CALLS = (Call("T1", "a", 40.0), Call("T2", "b", 30.0), Call("T4", "b", 20.0, launches=0), Call("T3", "b", 10.0))
STEP = RecordedStep(0.0, 100.0, 2, CALLS, (Kernel("gemm", "0/7", 0.0, 50.0),))


def test_the_timeline_has_the_host_and_each_stream():
    frame = walk_timeline(STEP)
    assert frame["lane"].unique().tolist() == ["thread of the host", "GPU stream 7"]
    kernel = frame[frame["kind"] == "kernel"].iloc[0]
    assert (kernel["start_us"], kernel["duration_us"]) == (90, 50)
    assert set(walk_timeline(STEP, without=KINDS)["kind"]) == {"kernel"}


def test_each_step_of_the_slider_takes_one_more_overhead_away():
    view = overheads(STEP)
    assert view.gone.description
    assert "0.14 ms, 100% of the whole step" in view.length.value
    view.gone.value = 1
    assert "0.10 ms, 71%" in view.length.value
    view.gone.value = 4
    assert "0.05 ms, 36%" in view.length.value
    names = {"step": STEP, "walk_timeline": walk_timeline, "figure_timeline": figure_timeline}
    drawn = eval(view.in_code().removeprefix("show"), names)
    assert [trace.name for trace in drawn.data] == [trace.name for trace in view.figure.data]


def test_a_step_of_the_readers_own_has_t1_and_t5_to_take_away():
    operators = [Operator("aten.mm", "forward", ()), Operator("aten.t", "forward", (), is_view=True)]
    own = own_step(TimedStep("mine", {}, operators, np.array([60e-6, 10e-6]), 100e-6))
    view = overheads(own, name="own")
    assert [words for words, _ in view.gone.options] == ["none", "T1", "T1, T5"]
    assert "0.10 ms, 100%" in view.length.value
    view.gone.value = 1
    assert "0.07 ms, 70%" in view.length.value
    assert "walk_timeline(own, without=('T1',))" in view.in_code()
    view.gone.value = 2
    assert "0.06 ms, 60%" in view.length.value
    assert [(bar.name, bar.y[0]) for bar in view.figure.data] == [("compute · predicted", "thread of the host")]

"""The walk over small steps, whose times are added up by hand, over a recorded one, and the figure of its overheads."""

import gzip
import json

import numpy as np
import pytest
from recorded_step import active_us

from labkit.plots import describe
from labkit.profiling import TraceError
from labkit.project import shipped_datasets
from labkit_course.apparatus import (
    KINDS,
    begin_together,
    figure_walks,
    transfers_us,
    walk,
    walk_timeline,
    walk_together,
)
from labkit_course.apparatus.recorded_step import Call, Kernel, RecordedStep, read_step, with_overheads

SHIPPED = sorted((shipped_datasets() / "recorded" / "param-v100" / "original").iterdir())


def step(calls, kernels, start_us=0.0) -> RecordedStep:
    return RecordedStep(start_us, 100.0, len(calls), tuple(calls), tuple(kernels))


def kernel(us, stream="7", **others) -> Kernel:
    return Kernel("k", stream, others.pop("start_us", 0.0), us, **others)


def test_a_host_that_is_slower_than_its_kernels_decides():
    calls = [Call("T1", "a", 3), Call("T2", "a", 5), Call("T4", "a", 2, launches=0), Call("T3", "a", 7)]
    walked = walk(step(calls, [kernel(4)]))
    assert (walked.host_us, walked.starts_us, walked.ends_us, walked.step_us) == (17, (10,), (14,), 17)
    assert walk(step(calls, [kernel(4)]), without=["T2", "T3"]).host_us == 5


def test_kernels_of_a_stream_follow_each_other_a_microsecond_apart_and_streams_do_not_wait():
    calls = [Call("T4", "a", 2, launches=number) for number in range(3)]
    walked = walk(step(calls, [kernel(50), kernel(5), kernel(5, "84")]))
    assert walked.starts_us == (2, 53, 6)
    assert walked.step_us == walked.device_us == 58


def test_what_waits_for_another_stream_or_for_the_device_waits_for_its_end():
    kernels = [kernel(50), kernel(5, "84", after=(0,)), kernel(1)]
    calls = [Call("T4", "a", 2, launches=0), Call("T4", "b", 2, launches=1), Call("T5", "c", 3, waits_for=1)]
    walked = walk(step([*calls, Call("T4", "d", 2, launches=2)], kernels))
    assert walked.starts_us == (2, 52, 59)
    assert walked.host_us == 59, "57 is the end of the second, and a launch takes 2"


def test_a_collective_moves_its_data_when_the_last_rank_has_come():
    def rank(host_us, start_us):
        calls = [Call("T1", "a", host_us), Call("T4", "nccl", 1, launches=0), Call("T5", "wait", 1, waits_for=0)]
        arrives = start_us + host_us + 1
        return step(calls, [kernel(200 - arrives, "84", collective=0, start_us=arrives)], start_us)

    ranks = [rank(10, 0.0), rank(30, 20.0)]
    assert transfers_us(ranks) == {0: 200 - 51}
    quick, slow = walk_together(ranks, {0: 9})
    assert (quick.host_us, slow.host_us) == (60, 40), "both go on at 51 + 9 on the common clock"


def test_overheads_of_others_are_those_of_the_same_operator_or_else_of_the_kind():
    own = step([Call("T1", "a", 1), Call("T1", "b", 1), Call("T2", "c", 1)], [])
    others = [step([Call("T1", "a", us), Call("T1", "d", 30)], []) for us in (10, 20)]
    assert [call.us for call in with_overheads(own, others).calls] == [15, 22.5, 1]


def test_active_time_counts_what_overlaps_once():
    assert active_us([(0, 10), (2, 5), (8, 12), (20, 21)]) == 13


@pytest.fixture(scope="module")
def ranks():
    return [read_step(path) for path in SHIPPED]


def test_the_walk_gives_each_recorded_rank_its_step_from_its_own_kernels_and_overheads(ranks):
    # without the kernels of the step before
    assert [len(rank.kernels) for rank in ranks] == [261, 262, 262, 273, 273, 261, 262, 262]
    assert {sum(k.collective is not None for k in rank.kernels) for rank in ranks} == {8}
    for rank in ranks:
        walked = walk(rank)
        assert walked.step_us == pytest.approx(rank.duration_us, rel=0.01)
        late_us = [
            start - (k.start_us - rank.start_us) for start, k in zip(walked.starts_us, rank.kernels, strict=True)
        ]
        assert np.abs(late_us).max() < 60, "no stream waits for what it did not wait for"


def by_driver(number, event):
    """Every other launch as one of the driver's, not the runtime's."""
    if number % 2 == 0 and event["name"] == "cudaLaunchKernel":
        event |= {"name": "cuLaunchKernel", "cat": "cuda_driver"}


def of_rocm(number, event):
    if event.get("cat") == "cuda_runtime":
        event["name"] = event["name"].replace("cuda", "hip").replace("hipLaunchKernel", "hipExtModuleLaunchKernel")


@pytest.mark.parametrize("renamed", [by_driver, of_rocm])
def test_a_step_is_read_alike_whoever_launched_its_kernels(ranks, tmp_path, renamed):
    trace = json.loads(gzip.decompress(SHIPPED[0].read_bytes()))
    for number, event in enumerate(trace["traceEvents"]):
        renamed(number, event)
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps(trace))
    assert read_step(path) == ranks[0]


def trace_of_launches(path, launch, kernels, correlation=5):
    span = {"ph": "X", "pid": 1, "tid": 1}
    events = [
        span | {"cat": "user_annotation", "name": "ProfilerStep#1", "ts": 0, "dur": 1000},
        span | {"cat": "cpu_op", "name": "aten::mm", "ts": 10, "dur": 200},
        span | {"cat": "cuda_runtime", "name": launch, "ts": 50, "dur": 20, "args": {"correlation": 5}},
    ]
    work = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "dur": 30}
    events += [work | {"ts": 90 + 40 * at, "args": {"correlation": correlation}} for at in range(kernels)]
    path.write_text(json.dumps({"traceEvents": events}))
    return path


@pytest.mark.parametrize(
    "launch", ["cudaGraphLaunch", "hipGraphLaunch", "hipModuleLaunchKernel", "urEnqueueKernelLaunch"]
)
def test_all_kernels_of_a_launch_are_there_whatever_its_name(tmp_path, launch):
    step = read_step(trace_of_launches(tmp_path / "t.json", launch, kernels=3))
    assert [(k.start_us, k.duration_us) for k in step.kernels] == [(90, 30), (130, 30), (170, 30)]
    assert [(call.us, call.launches) for call in step.calls if call.kind == "T4"] == [(20, 0), (0, 1), (0, 2)]


def test_kernels_without_their_launches_are_refused(tmp_path):
    with pytest.raises(TraceError, match="3 kernels and copies, and no recorded call"):
        read_step(trace_of_launches(tmp_path / "t.json", "cudaLaunchKernel", kernels=3, correlation=6))


def test_overheads_carry_over_to_a_rank_that_they_are_not_from(ranks):
    errors = [
        walk(with_overheads(rank, [other for other in ranks if other is not rank])).step_us / rank.duration_us - 1
        for rank in ranks
    ]
    assert np.exp(np.log(np.abs(errors)).mean()) < 0.05


def test_all_ranks_together_wait_for_the_same_rank_as_was_recorded(ranks):
    walks = walk_together(ranks, transfers_us(ranks))
    for rank, walked in zip(ranks, walks, strict=True):
        assert walked.step_us == pytest.approx(rank.duration_us, rel=0.01)
    for number in range(8):
        measured, walked = [], []
        for rank, its in zip(ranks, walks, strict=True):
            place = next(place for place, k in enumerate(rank.kernels) if k.collective == number)
            measured.append(rank.kernels[place].start_us)
            walked.append(rank.start_us + its.starts_us[place])
        assert np.argmax(measured) == np.argmax(walked)


def test_without_overheads_on_all_ranks_a_tenth_of_the_step_is_left(ranks):
    """On one rank alone it is 44 %: its collectives keep the waiting for other ranks' hosts."""
    together, transfers = begin_together(ranks), transfers_us(ranks)
    bare, whole = (walk_together(together, transfers, without=kinds) for kinds in (KINDS, ()))
    left = [one.step_us / other.step_us for one, other in zip(bare, whole, strict=True)]
    assert 0.10 < min(left) < max(left) < 0.11
    assert walk(ranks[0], without=KINDS).step_us / walk(ranks[0]).step_us == pytest.approx(0.444, abs=0.002)


@pytest.mark.parametrize(("category", "lacks"), [("kernel", "no step"), ("user_annotation", "no kernel")])
def test_a_trace_without_a_step_or_a_kernel_is_refused(category, lacks, tmp_path):
    path = tmp_path / "trace.json"
    event = {"ph": "X", "cat": category, "name": "ProfilerStep#1", "ts": 0, "dur": 5, "tid": 1, "pid": 1, "args": {}}
    path.write_text(json.dumps({"traceEvents": [event]}))
    with pytest.raises(TraceError, match=lacks):
        read_step(path)


CALLS = (Call("T1", "a", 40.0), Call("T2", "b", 30.0), Call("T4", "b", 20.0, launches=0), Call("T3", "b", 10.0))
STEP = RecordedStep(0.0, 100.0, 2, CALLS, (Kernel("gemm", "0/7", 0.0, 50.0),))


def test_the_timeline_has_the_host_and_each_stream():
    frame = walk_timeline(STEP)
    assert frame["lane"].unique().tolist() == ["thread of the host", "GPU stream 7"]
    kernel = frame[frame["kind"] == "kernel"].iloc[0]
    assert (kernel["start_us"], kernel["duration_us"]) == (90, 50)
    assert set(walk_timeline(STEP, without=KINDS)["kind"]) == {"kernel"}


def test_the_figure_has_a_lane_for_what_is_left_of_each_walk():
    gone = walk_timeline(STEP, without=KINDS)
    figure = figure_walks({"recorded": walk_timeline(STEP), "predicted": gone})
    lanes = ["GPU stream 7, predicted", "GPU stream 7, recorded", "thread of the host, recorded"]  # no host is left
    assert list(figure.layout.yaxis.categoryarray) == lanes
    assert [trace.name for trace in figure.data] == [
        *(f"T{number} · recorded" for number in range(1, 5)),
        "kernel · recorded",
        "kernel · predicted",
    ]
    assert (figure.data[-1].base[0], figure.data[-1].x[0]) == (0, 0.05)
    assert describe(figure).text.endswith("Without these overheads 0.1 of 0.1 ms are left, 36%.")

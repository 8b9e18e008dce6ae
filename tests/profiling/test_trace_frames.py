"""Traces as frames: nesting, operators, phases, memory; beside what torch's own table says."""

import numpy as np
import pytest
import torch
from kineto import event, note, recorded, trace_of
from torch.profiler import record_function

from labkit.profiling.traces.nesting import nest
from labkit.profiling.traces.trace_file import TraceError


def test_an_event_that_begins_with_its_parent_is_its_child():
    parent, own = nest(np.zeros(2), np.array([1.0, 1.0]), np.array([2.0, 5.0]))
    assert parent.tolist() == [1, -1]
    assert own.tolist() == [2, 3]


def test_operators_add_up_by_self_time(tmp_path):
    events = [
        note("forward", 1000, 100),
        event("mm", 1010, 40),
        event("empty", 1015, 10),
        event("mm", 1060, 20),
    ]
    trace = trace_of(tmp_path, events)
    assert trace.events["start_us"].tolist() == [0, 10, 15, 60]
    table = trace.operators.set_index("operator")
    assert table.loc["mm"].to_dict() == {"calls": 2, "total_us": 60, "self_us": 50, "share": 0.5}
    assert table.index.tolist() == ["mm", "empty"]
    assert trace.kernels.empty and trace.allocations.empty


def test_kernels_are_joined_with_their_launch_and_do_not_nest(tmp_path):
    events = [
        event("aten::mm", 0, 50),
        event("cudaLaunchKernel", 10, 5, "cuda_runtime", correlation=7),
        event("sgemm", 30, 100, "kernel", tid="stream 7", correlation=7),
        event("copy", 20, 10, "gpu_memcpy", tid="stream 7", correlation=8),
    ]
    trace = trace_of(tmp_path, events)
    assert trace.kernels.set_index("kernel")["share"].to_dict() == pytest.approx({"sgemm": 100 / 110, "copy": 10 / 110})
    launch, kernel = (trace.events[trace.events["name"] == name].iloc[0] for name in ("cudaLaunchKernel", "sgemm"))
    assert launch["correlation"] == kernel["correlation"] == 7
    assert trace.operators["self_us"].tolist() == [50]


def test_memory_is_kept_as_taken_and_given_back(tmp_path):
    def took(at, size, total):
        return {"ph": "i", "name": "[memory]", "ts": at, "pid": 9, "tid": 1, "s": "t"} | {
            "args": {"Bytes": size, "Addr": 77, "Device Type": 0, "Device Id": -1, "Total Allocated": total}
        }

    trace = trace_of(tmp_path, [event("mm", 10, 5), took(12, 100, 300), took(11, 200, 200), took(14, -200, 100)])
    assert trace.allocations["time_us"].tolist() == [1, 2, 4]
    assert trace.allocations["bytes"].tolist() == [200, 100, -200]
    assert trace.allocations["total_bytes"].max() == 300


def test_another_tools_begin_and_end_are_events(tmp_path):
    mark = {"pid": 1, "tid": 2}
    events = [
        {"ph": "B", "name": "outer", "ts": 1, **mark},
        {"ph": "B", "name": "inner", "ts": 2, **mark},
        {"ph": "E", "ts": 5, **mark},
        {"ph": "E", "ts": 9, **mark},
        {"ph": "E", "ts": 9, **mark},  # of one that began before the trace did
    ]
    trace = trace_of(tmp_path, events)
    assert trace.events[["name", "duration_us", "self_us"]].astype({"name": str}).to_numpy().tolist() == [
        ["outer", 8, 5],
        ["inner", 3, 3],
    ]


def test_a_trace_without_work_says_what_the_schedule_missed(tmp_path):
    with pytest.raises(TraceError, match=r"call its step\(\) once a step"):
        trace_of(tmp_path, [{"ph": "M", "name": "process_name", "pid": 1, "args": {}}])


def test_self_times_agree_with_torchs_table(tmp_path):
    """On a model with nested operators, several threads of the backward pass and annotations."""
    tables = torch.nn.ModuleList([torch.nn.EmbeddingBag(1000, 8, mode="sum") for _ in range(3)])
    top = torch.nn.Sequential(torch.nn.Linear(24, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    optimiser = torch.optim.SGD([*tables.parameters(), *top.parameters()], lr=0.1)
    rows = torch.randint(0, 1000, (3, 128, 2))

    def steps():
        for _ in range(5):
            with record_function("forward"):
                out = top(torch.cat([table(index) for table, index in zip(tables, rows, strict=True)], 1)).mean()
            optimiser.zero_grad()
            out.backward()
            optimiser.step()

    trace, profiler = recorded(tmp_path, steps, profile_memory=True)
    ours = trace.operators.set_index("operator")
    theirs = {each.key: each for each in profiler.key_averages() if each.key.startswith("aten::")}
    assert set(theirs) <= set(ours.index)
    for name, each in theirs.items():
        assert ours.loc[name, "calls"] == each.count
        # the file has nanoseconds, so that only rounding differs
        assert ours.loc[name, "self_us"] == pytest.approx(each.self_cpu_time_total, rel=0.01, abs=0.01), name
    assert (trace.allocations["bytes"] > 0).any() and (trace.allocations["bytes"] < 0).any()
    shapes = set(trace.events.loc[trace.events["name"] == "aten::addmm", "shapes"].astype(str))
    assert "[[64], [128, 24], [24, 64], [], []]" in shapes

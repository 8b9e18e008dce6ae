"""Traces as frames: nesting, operators, kernels, memory; of each torch of our range, and of other tools."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from kineto import event, note, recorded, trace_of
from torch.profiler import record_function

from labkit.profiling.step_time import step_time
from labkit.profiling.traces.device_time import device_breakdown
from labkit.profiling.traces.nesting import nest
from labkit.profiling.traces.trace import read_trace
from labkit.profiling.traces.trace_file import TraceError
from labkit.profiling.work import operators_at_work

TRACES = Path(__file__).with_name("traces")
STEPS, BATCH, TABLES, DIM = 2, 16, 2, 8


def test_an_event_that_begins_with_its_parent_is_its_child():
    parent, own = nest(np.zeros(2), np.array([1.0, 1.0]), np.array([2.0, 5.0]))
    assert parent.tolist() == [1, -1] and own.tolist() == [2, 3]


def test_operators_add_up_by_self_time_and_kernels_do_not_nest(tmp_path):
    events = [
        note("forward", 1000, 100),
        event("mm", 1010, 40),
        event("empty", 1015, 10),
        event("mm", 1060, 20),
        event("cudaLaunchKernel", 1062, 5, "cuda_runtime", correlation=7),
        event("sgemm", 1070, 100, "kernel", tid="stream 7", correlation=7),
        event("copy", 1075, 10, "gpu_memcpy", tid="stream 7", correlation=8),
    ]
    trace = trace_of(tmp_path, events)
    assert trace.events["start_us"].tolist() == [0, 10, 15, 60, 62, 70, 75]
    table = trace.operators.set_index("operator")
    assert table.loc["mm"].to_dict() == {"calls": 2, "total_us": 60, "self_us": 50, "share": 0.5}
    assert table.index.tolist() == ["mm", "empty"]
    assert trace.kernels.set_index("kernel")["share"].to_dict() == pytest.approx({"sgemm": 100 / 110, "copy": 10 / 110})
    assert trace.events["correlation"].tolist() == [-1, -1, -1, -1, 7, 7, 8] and trace.allocations.empty


def test_a_trace_without_work_or_with_damaged_numbers_is_told(tmp_path):
    with pytest.raises(TraceError, match=r"call its step\(\) once a step"):
        trace_of(tmp_path, [{"ph": "M", "name": "process_name", "pid": 1, "args": {}}])
    for damaged, words in (({"ts": "soon"}, "ts is 'soon', and a number must"), ({"dur": -1}, "it takes -1.0 µs")):
        with pytest.raises(TraceError, match=f"event 'mm' at .*{words}.*damaged"):
            trace_of(tmp_path, [event("mm", 1, 2) | damaged])


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
    ours = trace.operators.set_index("operator")["self_us"]
    theirs = {each.key: each.self_cpu_time_total for each in profiler.key_averages() if each.key.startswith("aten::")}
    # the file has nanoseconds, so that only rounding differs
    assert ours[list(theirs)].to_dict() == pytest.approx(theirs, rel=0.01, abs=0.01)
    assert (trace.allocations["bytes"] > 0).any() and (trace.allocations["bytes"] < 0).any()


def check(path):
    """That a trace of the two small steps says of them what they did; the work of its operators."""
    trace = read_trace(path)
    operators = trace.operators.set_index("operator")
    assert operators.loc["aten::addmm", "calls"] == STEPS * 2
    assert operators.loc["aten::_embedding_bag", "calls"] == STEPS * TABLES
    assert operators["share"].sum() <= 1
    time = step_time(trace)
    assert set(time.segments["step"]) == {1, 2}
    assert {"input", "forward", "backward", "optimiser"} <= set(time.phases()["phase"])
    taken = trace.allocations["bytes"]
    assert (taken > 0).any() and (taken < 0).any() and (trace.allocations["device"] == -1).all()
    work = operators_at_work(trace).set_index("operator")
    products = 4 * DIM + DIM * (TABLES + 1) * 1
    assert work.loc["aten::addmm", "flop"] == STEPS * 2 * BATCH * products
    # bags of 3 rows are 2 additions
    assert work.loc["aten::_embedding_bag", "flop"] == STEPS * TABLES * BATCH * 2 * DIM
    assert work.loc["aten::_embedding_bag_backward", "flop"] == STEPS * TABLES * BATCH * 3 * DIM
    assert (work["bytes"] > 0).all()
    return work[["calls", "flop", "bytes"]].sort_index()


def test_traces_of_the_oldest_and_the_newest_torch_are_read_alike():
    assert check(TRACES / "torch-2.11.json.gz").equals(check(TRACES / "torch-2.13.json.gz"))


def test_the_trace_of_the_torch_that_is_installed_is_read(tmp_path):
    subprocess.run([sys.executable, TRACES / "make_traces.py", tmp_path], check=True, capture_output=True)
    (path,) = tmp_path.iterdir()
    check(path)


SPAN = {"pid": 12, "tid": 34}
# as VizTracer writes: complete calls with a category of its own, in seconds' millionths with fractions
VIZTRACER = {
    "traceEvents": [
        {"ph": "M", **SPAN, "name": "process_name", "args": {"name": "MainProcess"}},
        {**SPAN, "ts": 100.5, "ph": "X", "cat": "FEE", "dur": 90.25, "name": "step (train.py:3)"},
        {**SPAN, "ts": 110.5, "ph": "X", "cat": "FEE", "dur": 50.0, "name": "load (train.py:9)"},
    ],
    "viztracer_metadata": {"overflow": False, "version": "1.0.4"},
}
# as Perfetto's interface opens it: begin and end, counters, flows, marks; no categories
PERFETTO = [
    {"ph": "B", **SPAN, "ts": 100.5, "name": "step"},
    {"ph": "C", **SPAN, "ts": 101, "name": "memory", "args": {"used": 3}},
    {"ph": "B", **SPAN, "ts": 110.5, "name": "load", "args": {"rows": 5}},
    {"ph": "s", **SPAN, "ts": 111, "name": "to", "id": 1},
    {"ph": "i", **SPAN, "ts": 112, "name": "mark", "s": "t"},
    {"ph": "E", **SPAN, "ts": 160.5},
    {"ph": "E", **SPAN, "ts": 190.75},
    {"ph": "E", **SPAN, "ts": 190.75},  # of one that began before the trace did
]


@pytest.mark.parametrize("written", [VIZTRACER, PERFETTO], ids=["viztracer", "perfetto"])
def test_calls_of_another_tool_nest_though_they_are_no_operators(written, tmp_path):
    path = tmp_path / "t.json"
    path.write_text(json.dumps(written))
    trace = read_trace(path)
    calls = trace.events.astype({"name": str})
    assert [name.split()[0] for name in calls["name"]] == ["step", "load"]
    assert calls["self_us"].tolist() == [40.25, 50.0] and calls["parent"].tolist() == [-1, 0]
    for table in (trace.operators, trace.kernels, trace.allocations, operators_at_work(trace), device_breakdown(trace)):
        assert table.empty

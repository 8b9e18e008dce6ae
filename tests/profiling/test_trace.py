"""Traces: files read piece by piece, whole or damaged; their frames; of each torch of our range, and other tools."""

import gzip
import json
import random
import tracemalloc
from pathlib import Path

import pytest
import torch
from kineto import event, note, operators, recorded, trace_of
from torch.profiler import record_function

from labkit.profiling import trace as trace_module
from labkit.profiling.over_time import device_breakdown, operators_at_work
from labkit.profiling.step_time import step_time
from labkit.profiling.trace import TraceError, read_trace, stream_events

TRACES = Path(__file__).with_name("traces")
STEPS, BATCH, TABLES, DIM = 2, 16, 2, 8


def test_operators_add_up_by_self_time_and_kernels_do_not_nest(tmp_path):
    events = [
        note("forward", 1000, 100),
        event("empty", 1010, 10),  # begins with its parent
        event("mm", 1010, 40),
        event("mm", 1060, 20),
        event("cudaLaunchKernel", 1062, 5, "cuda_runtime", correlation=7),
        event("sgemm", 1070, 100, "kernel", tid="stream 7", correlation=7),
        event("copy", 1075, 10, "gpu_memcpy", tid="stream 7", correlation=8),
    ]
    trace = trace_of(tmp_path, events)
    assert trace.events["start_us"].tolist() == [0, 10, 10, 60, 62, 70, 75]
    assert operators(trace).T.to_dict() == {
        "mm": {"calls": 2, "total_us": 60, "self_us": 50},
        "empty": {"calls": 1, "total_us": 10, "self_us": 10},
    }
    assert trace.is_of_gpu
    assert trace.events["correlation"].tolist() == [-1, -1, -1, -1, 7, 7, 8] and trace.allocations.empty


def test_a_trace_without_work_or_with_damaged_numbers_is_told(tmp_path):
    with pytest.raises(TraceError, match=r"call its step\(\) once per step"):
        trace_of(tmp_path, [{"ph": "M", "name": "process_name", "pid": 1, "args": {}}])
    for damaged, words in (({"ts": "soon"}, "ts is 'soon', and must be a number"), ({"dur": -1}, "it takes -1.0 µs")):
        with pytest.raises(TraceError, match=f"event 'mm' at .*{words}.*damaged"):
            trace_of(tmp_path, [event("mm", 1, 2) | damaged])


def test_self_times_agree_with_torchs_table(tmp_path):
    """On a model with nested operators, several threads of the backward pass and annotations."""
    table, top = (
        torch.nn.EmbeddingBag(1000, 8, mode="sum"),
        torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.ReLU()),
    )
    optimiser = torch.optim.SGD([*table.parameters(), *top.parameters()], lr=0.1)
    rows = torch.randint(0, 1000, (128, 2))

    def steps():
        for _ in range(5):
            with record_function("forward"):
                out = top(table(rows)).mean()
            optimiser.zero_grad()
            out.backward()
            optimiser.step()

    trace, profiler = recorded(tmp_path, steps, profile_memory=True)
    ours = operators(trace)["self_us"]
    theirs = {each.key: each.self_cpu_time_total for each in profiler.key_averages() if each.key.startswith("aten::")}
    # the file has nanoseconds, so that only rounding differs
    assert ours[list(theirs)].to_dict() == pytest.approx(theirs, rel=0.01, abs=0.01)
    assert (trace.allocations["bytes"] > 0).any() and (trace.allocations["bytes"] < 0).any()


def test_traces_of_the_oldest_and_the_newest_torch_are_read_alike():
    works = []
    for version in ("2.11", "2.13"):
        trace = read_trace(TRACES / f"torch-{version}.json.gz")
        calls = operators(trace)["calls"]
        assert (calls["aten::addmm"], calls["aten::_embedding_bag"]) == (STEPS * 2, STEPS * TABLES)
        assert {"input", "forward", "backward", "optimiser"} <= set(step_time(trace).phases["phase"])
        assert (trace.allocations["bytes"] > 0).any() and (trace.allocations["bytes"] < 0).any()
        works.append(operators_at_work(trace).set_index("operator")[["calls", "flop", "bytes"]].sort_index())
    assert works[0].equals(works[1])
    # bags of 3 rows are 2 additions
    assert works[0].loc["aten::_embedding_bag", "flop"] == STEPS * TABLES * BATCH * 2 * DIM
    assert works[0].loc["aten::_embedding_bag_backward", "flop"] == STEPS * TABLES * BATCH * 3 * DIM


SPAN = {"pid": 12, "tid": 34}
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


def test_calls_of_another_tool_nest_though_they_are_no_operators(tmp_path):
    trace = trace_of(tmp_path, PERFETTO)
    calls = trace.events.astype({"name": str})
    assert calls["name"].tolist() == ["step", "load"]
    assert calls["self_us"].tolist() == [40.25, 50.0] and calls["parent"].tolist() == [-1, 0]
    assert not trace.is_of_gpu
    for table in (trace.allocations, operators_at_work(trace), device_breakdown(trace)):
        assert table.empty


def ran(name, start, end, stream=7, device=0, cat="kernel"):
    return event(name, start, end - start, cat, stream, device, correlation=1, stream=stream, device=device)


COPY = "Memcpy HtoD (Pageable -> Device)"
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, ...)"


def test_time_in_which_streams_overlap_counts_once_and_each_device_has_its_own(tmp_path):
    events = [
        ran("gemm", 100, 130),
        ran("relu", 120, 150, stream=13),
        ran("gemm", 125, 128, stream=20),  # within the first
        ran(NCCL, 140, 180, stream=20),
        ran(COPY, 190, 200, cat="gpu_memcpy"),
        *(ran(name, 0, 30, device=1) for name in ("gemm", NCCL)),
    ]
    found = device_breakdown(trace_of(tmp_path, events)).set_index("device")
    assert found.loc[0, ["span_us", "idle_us", "compute_us", "non_compute_us"]].tolist() == [100, 10, 50, 40]
    assert found.loc[0, ["idle_share", "compute_share", "non_compute_share"]].tolist() == [0.1, 0.5, 0.4]
    assert found.loc[1, ["span_us", "idle_us", "compute_share"]].tolist() == [30, 0, 1]


def test_a_devices_time_is_divided_as_hta_divides_it(tmp_path, monkeypatch):
    hta = pytest.importorskip("hta.trace_analysis", reason="HTA is not installed: pip install HolisticTraceAnalysis")
    monkeypatch.setenv("HTA_DISABLE_NS_ROUNDING", "1")
    draw, free = random.Random(17), dict.fromkeys((7, 13, 20), 0.0)
    events = [event("ProfilerStep#4", 5e6 - 9, 8000, "user_annotation", 4321, 4321)]
    for number in range(150):
        launched, stream = 5e6 + 50 * number, draw.choice(list(free))
        name, kind = draw.choice([("gemm", "kernel"), (NCCL, "kernel"), (COPY, "gpu_memcpy")])
        start = max(launched + draw.uniform(5, 9), free[stream])
        free[stream] = start + draw.uniform(4, 90)
        ids = {"correlation": number + 1, "stream": stream, "device": 0}
        events += [
            event("aten::addmm", launched - 2, 12, tid=4321, pid=4321, **{"External id": number + 1}),
            event("cudaLaunchKernel", launched, 4, "cuda_runtime", 4321, 4321, cbid=211, correlation=number + 1),
            event(name, start, free[stream] - start, kind, stream, 0, **ids),
        ]
    events.sort(key=lambda each: each["ts"])
    ours = device_breakdown(trace_of(tmp_path, events)).iloc[0]
    found = hta.TraceAnalysis(trace_files={0: str(tmp_path / "t.json")}, trace_dir="/", include_last_profiler_step=True)
    theirs = found.get_temporal_breakdown(visualize=False).iloc[0]
    for our, their in (("span", "kernel"), *((part, part) for part in ("idle", "compute", "non_compute"))):
        # in ns they differ by the rounding of sums of up to 1e7 µs in doubles
        assert ours[f"{our}_us"] == pytest.approx(theirs[f"{their}_time(us)"], abs=1e-4)
        assert ours[f"{our}_us"] > 0.02 * ours["span_us"], "a part too small to compare"


NAME = 'odd "name" with ] and }, \\'
EVENTS = [
    {"ph": "X", "cat": "cpu_op", "name": NAME, "ts": 1.5, "dur": 2, "args": {"Input Dims": [[2, 3], []]}},
    {"ph": "i", "name": "mark", "ts": 3},
    {"ph": "X", "cat": "cpu_op", "name": "größer\n", "ts": 4.25, "dur": 0.001},
]
WHOLE = {"schemaVersion": 1, "deviceProperties": [{"id": 0}], "traceEvents": EVENTS, "traceName": "t"}
TEXT, LIST = json.dumps(WHOLE), json.dumps(EVENTS)


@pytest.fixture(params=[trace_module.CHUNK, 1, 7], ids="chunk={}".format)
def path(request, monkeypatch, tmp_path):
    monkeypatch.setattr(trace_module, "CHUNK", request.param)
    return tmp_path / "trace.json"


# of a bare list the end may be missing
@pytest.mark.parametrize("text", [TEXT, json.dumps(WHOLE, indent=2), LIST + "\n", LIST[:-1], LIST[:-1] + ",\n"])
@pytest.mark.parametrize("packed", [str.encode, lambda text: gzip.compress(text.encode())], ids=["plain", "gzip"])
def test_events_come_as_they_were_written(path, text, packed):
    path.write_bytes(packed(text))
    assert list(stream_events(path)) == EVENTS


DAMAGED = {
    "empty": (" \n", "this trace is empty"),
    "cut inside an event": (TEXT[: TEXT.index("mark")], "after 1 events: no event can be read here, or the file was"),
    "cut inside a text": (TEXT[: TEXT.index("gr\\u00f6") + 2], "the file was cut off"),
    "cut between events": (TEXT[: TEXT.index('{"ph": "i"')], "after 1 events: the file ends before its list"),
    "broken": (TEXT.replace('"ts": 3', '"ts": 3..3'), "after 1 events: no event can be read here"),
    "not events": ('{"traceEvents": [1, 2]}', "events are objects in braces"),
    "another format": ("SQLite format 3\x00", "not a trace in Chrome's format"),
    "cut off, compressed": (gzip.compress(TEXT.encode())[:-90], "compression is damaged or cut off"),
    "other JSON": ('{"cells": []}', "not a trace in Chrome's format"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_what_is_damaged_is_told_with_the_place_and_the_remedy(path, case):
    text, words = DAMAGED[case]
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(TraceError) as error:
        list(stream_events(path))
    assert words in str(error.value) and str(path) in str(error.value)


def test_the_size_of_the_file_is_not_the_size_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(trace_module, "CHUNK", 2**14)
    path = tmp_path / "trace.json"
    path.write_text('{"traceEvents": [' + ",\n".join([json.dumps(EVENTS[0])] * 10_000) + "]}")
    tracemalloc.start()
    count = sum(1 for _ in stream_events(path))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 10_000 and peak < 0.4 * path.stat().st_size

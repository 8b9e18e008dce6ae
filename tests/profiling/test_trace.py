"""Traces: files read piece by piece, whole or damaged; their frames; of each torch of our range, and other tools."""

import gzip
import json
import random
import tracemalloc
from pathlib import Path

import pytest
import torch
from kineto import event, note, operators, recorded, shaped, trace_of
from torch.profiler import record_function

from labkit.profiling import trace_file
from labkit.profiling.over_time import device_breakdown, launched_us, operators_at_work
from labkit.profiling.step_time import step_time
from labkit.profiling.trace import read_trace
from labkit.profiling.trace_file import TraceError, stream_events

TRACES = Path(__file__).with_name("traces")
STEPS, BATCH, TABLES, DIM = 2, 16, 2, 8


@pytest.fixture(params=[trace_file.CHUNK, 1, 7], ids="chunk={}".format)
def path(request, monkeypatch, tmp_path):
    monkeypatch.setattr(trace_file, "CHUNK", request.param)
    return tmp_path / "trace.json"


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


def test_a_trace_without_work_is_refused_with_what_it_has(tmp_path):
    with pytest.raises(TraceError, match=r"call its step\(\) once per step.* 1 counters, 1 damaged \(negative"):
        trace_of(tmp_path, [{"ph": "M", "name": "process_name"}, {"ph": "C", "ts": 1}, event("mm", 1, -1)])


STEP = [note("ProfilerStep#1", 0, 100), event("aten::mm", 10, 20)]
ODD = {
    "control character": (b'{"ph": "X", "cat": "cpu_op", "name": "a.py(0): \x01", "ts": 40, "dur": 5}', 3, {}),
    "not UTF-8": (b'{"ph": "X", "cat": "cpu_op", "name": "caf\xe9", "ts": 40, "dur": 5}', 3, {}),
    "quotation mark": (b'{"ph": "X", "name": "{"device": "cpu"}: run", "ts": 4}', 2, {"unreadable": 1}),
    "backslash": (b'{"ph": "X", "name": "C:\\Users\\x.py(3): f", "args": {"a": [{"b": 1}]}}', 2, {"unreadable": 1}),
    "not JSON": (b"{undefined}", 2, {"unreadable": 1}),
    "not an object": (b"null", 2, {"unreadable": 1}),
    "negative duration": (json.dumps(event("mm", 4, -1)).encode(), 2, {"damaged (negative duration)": 1}),
    "no time": (b'{"ph": "X", "name": "a", "ts": NaN, "dur": 1}', 2, {"damaged (no number in ts)": 1}),
    "no duration": (b'{"ph": "X", "name": "a", "ts": 4}', 2, {"damaged (no number in dur)": 1}),
    "end before begin": (
        b'{"ph": "B", "name": "a", "ts": 4}, {"ph": "E", "ts": 3}',
        2,
        {"damaged (negative duration)": 1},
    ),
    "no end": (b'{"ph": "B", "name": "a", "ts": 4}', 2, {"begun and not ended": 1}),
    "no begin": (b'{"ph": "E", "ts": 4}', 2, {"ended and not begun": 1}),
    "odd correlation": (
        b'{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 4, "dur": 1, "args": {"correlation": "x"}}',
        3,
        {"correlations (no number in correlation)": 1},
    ),
    "another type": (b'{"ph": "P", "name": "sample", "ts": 4}', 2, {"of type P": 1}),
}


@pytest.mark.parametrize("at", [0, 1, 2])
@pytest.mark.parametrize("case", ODD)
def test_an_odd_event_costs_only_itself_and_is_counted(path, case, at):
    text, events, unused = ODD[case]
    parts = [json.dumps(each).encode() for each in STEP]
    begin, end = ((b'{"traceEvents": [', b'], "traceName": "t"}'), (b"[", b"]"), (b'{"traceEvents":[\n', b"\n]}\n"))[at]
    path.write_bytes(begin + b",\n".join([*parts[:at], text, *parts[at:]]) + end)
    trace = read_trace(path)
    assert len(trace.events) == events and trace.unused == unused
    assert "aten::mm" in trace.events["name"].to_list()


def test_a_byte_order_mark_or_utf_16_does_not_matter(path):
    for encoding in ("utf-8-sig", "utf-16"):
        path.write_text(json.dumps({"traceEvents": STEP}), encoding=encoding)
        assert len(read_trace(path).events) == 2


OLDER = {"cpu_op": "Operator", "user_annotation": "Operator", "kernel": "Kernel", "gpu_memcpy": "Memcpy",
         "gpu_memset": "Memset", "cuda_runtime": "Runtime"}  # fmt: skip


def test_totals_of_operators_kernels_and_steps_are_those_of_the_file_whatever_torch_wrote_it(tmp_path):
    """With categories of today and of torch 1.8 to 1.11; what is not used is counted."""
    events = []
    for begin in (0, 1000, 2000):
        events += [
            note(f"ProfilerStep#{begin // 1000 + 5}", begin, 1000),
            note("Optimizer.step#SGD.step", begin + 800, 100),
            shaped("aten::mm", begin + 10, 40, [[64, 32], [32, 16]]),
            event("AddmmBackward", begin + 300, 400, tid=2),  # autograd's thread, named as torch 1.8 names it
            event("aten::mm", begin + 320, 300, tid=2),
            event("cudaLaunchKernel", begin + 20, 5, "cuda_runtime", correlation=begin + 1),
            event("sgemm", begin + 30, 50, "kernel", "stream 7", 0, correlation=begin + 1),
            event("Memcpy HtoD", begin + 90, 10, "gpu_memcpy", "stream 7", 0),
            event("Memset", begin + 110, 5, "gpu_memset", "stream 7", 0),
            event("a.py(3): f", begin, 900, "python_function"),
            {"ph": "f", "cat": "ac2g", "name": "ac2g", "ts": begin, "pid": 0, "tid": 7, "id": 3},
        ]
    for names in ({}, OLDER):
        trace = trace_of(tmp_path, [each | {"cat": names.get(each["cat"], each["cat"])} for each in events])
        counts = trace.events["category"].value_counts()
        assert (counts["cpu_op"], counts["kernel"], counts["gpu_memcpy"], counts["gpu_memset"]) == (9, 3, 3, 3)
        time = step_time(trace)
        assert (time.steps, time.step_us) == (3, 1000)
        assert {name: us for name, us in time.phase_us.items() if us} == {
            "backward": 400,
            "optimiser": 100,
            "other": 500,
        }
        own = time.operators.set_index("operator")["self_us"]
        assert own.to_dict() == {"aten::mm": 340, "AddmmBackward": 100, "(outside of operators)": 560}
        assert operators_at_work(trace)["calls"].tolist() == [3]  # the others have no shapes
        assert device_breakdown(trace).loc[0, ["compute_us", "non_compute_us"]].tolist() == [150, 45]
        assert trace.unused == {"flow arrows": 3, "python_function": 3}
        assert "3 flow arrows, 3 python_function" in trace.unused_text


def test_launches_and_waits_of_any_device_are_used(tmp_path):
    for launch, wait, kind in (
        ("cudaLaunchKernel", "cudaDeviceSynchronize", "cuda_runtime"),
        ("cuLaunchKernel", "cuCtxSynchronize", "cuda_driver"),
        ("urEnqueueKernelLaunch", "urQueueFinish", "xpu_runtime"),  # Intel's GPUs
        ("aclnnMatmul", "aclrtSynchronizeStream", "privateuse1_runtime"),  # devices that are added to torch
    ):
        events = [note("ProfilerStep#1", 0, 1000), event("aten::mm", 10, 40), event(wait, 100, 700, kind)]
        events += [event(launch, 20, 5, kind, correlation=1), event("gemm", 30, 600, "kernel", 7, 0, correlation=1)]
        trace = trace_of(tmp_path, events)
        assert (step_time(trace).phase_us["sync"], trace.unused) == (700, {})
        assert launched_us(trace).tolist() == [600, 600, 0, 0, 0]  # of the step and the operator


def test_allocations_are_read_as_either_of_torchs_exporters_writes_them(tmp_path):
    mark = {"cat": "cpu_instant_event", "name": "[memory]", "ts": 5, "args": {"Bytes": 64, "Device Id": -1}}
    for kind in ({"ph": "i", "s": "t"}, {"ph": "X", "dur": 90}):
        trace = trace_of(tmp_path, [*STEP, mark | kind])
        assert trace.allocations.to_numpy().tolist() == [[5, 64, -1]] and len(trace.events) == 2


def test_collectives_on_a_thread_of_their_own_tell_a_rank_that_waits_from_one_that_is_late(tmp_path):
    """As gloo notes them: the rank that comes first waits in its collective, the other one computes."""

    def rank(begins, lasts):
        return [
            note("ProfilerStep#1", 0, 1000),
            event("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", 50, 900),
            event("c10d::allreduce_", begins, 5),
            event("aten::mm", 50, 40),
            note("gloo:all_reduce", begins, lasts, tid=2),
            event("aten::mul", begins + 20, 10),  # while it runs
        ]

    waits, late = (step_time(trace_of(tmp_path, rank(*each))).phase_us for each in ((100, 850), (900, 50)))
    assert (waits["communication"], waits["backward"]) == (820, 80)
    assert (late["communication"], late["backward"]) == (0, 900)


def test_steps_of_one_thread_count_once_and_threads_at_once_share_their_time(tmp_path):
    events = [note("ProfilerStep#1", 0, 1000), note("ProfilerStep#1", 0, 900, tid=7)]
    events += [event("MmBackward0", 100, 400, tid=tid) for tid in (2, 3)]  # of two devices
    time = step_time(trace_of(tmp_path, events))
    assert time.steps == 1
    assert time.operators["self_us"].tolist() == [400, 600]


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
    hta = pytest.importorskip("hta.trace_analysis", reason="HTA is not installed: pip install traceinsight")
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
    "another format": ("SQLite format 3\x00", "not a trace in Chrome's format, but an SQLite database"),
    "zip": (b"PK\x03\x04...", "a zip archive: unpack it"),
    "tar": (gzip.compress(b"t.json".ljust(257, b"\0") + b"ustar  "), "It is a tar archive: unpack it"),
    "execution trace": ('{"schema": "1.1.1", "nodes": []}', "It looks like an execution trace"),
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
    monkeypatch.setattr(trace_file, "CHUNK", 2**14)
    path = tmp_path / "trace.json"
    path.write_text('{"traceEvents": [' + ",\n".join([json.dumps(EVENTS[0])] * 10_000) + "]}")
    tracemalloc.start()
    count = sum(1 for _ in stream_events(path))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 10_000 and peak < 0.4 * path.stat().st_size

"""Traces of the oldest and the newest torch of our range (`traces/make_traces.py` wrote them), and of other tools."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from labkit.profiling.step_time import step_time
from labkit.profiling.traces.device_time import device_breakdown
from labkit.profiling.traces.trace import read_trace
from labkit.profiling.work.operators import operators_at_work

TRACES = Path(__file__).with_name("traces")
STEPS, BATCH, TABLES, DIM = 2, 16, 2, 8


def check(path):
    """That a trace of the two small steps says of them what they did."""
    trace = read_trace(path)
    operators = trace.operators.set_index("operator")
    assert operators.loc["aten::addmm", "calls"] == STEPS * 2
    assert operators.loc["aten::_embedding_bag", "calls"] == STEPS * TABLES
    assert operators["share"].sum() <= 1
    time = step_time(trace)
    assert set(time.segments["step"]) == {1, 2}
    assert {"input", "forward", "backward", "optimiser"} <= set(time.phases()["phase"])
    taken = trace.allocations["bytes"]
    assert (taken > 0).any() and (taken < 0).any()
    assert (trace.allocations["device"] == -1).all()
    work = operators_at_work(trace).set_index("operator")
    products = 4 * DIM + DIM * (TABLES + 1) * 1
    assert work.loc["aten::addmm", "flop"] == STEPS * 2 * BATCH * products
    # bags of 3 rows are 2 additions
    assert work.loc["aten::_embedding_bag", "flop"] == STEPS * TABLES * BATCH * 2 * DIM
    assert work.loc["aten::_embedding_bag_backward", "flop"] == STEPS * TABLES * BATCH * 3 * DIM
    assert (work["bytes"] > 0).all()
    return trace


@pytest.mark.parametrize("version", ["2.11", "2.13"])
def test_traces_of_each_torch_are_read(version):
    check(TRACES / f"torch-{version}.json.gz")


def test_operators_of_both_versions_have_the_same_work():
    tables = [operators_at_work(read_trace(path)) for path in sorted(TRACES.glob("torch-*.json.gz"))]
    columns = ["operator", "calls", "flop", "bytes"]
    first, second = (table[columns].sort_values("operator").to_numpy().tolist() for table in tables)
    assert first == second


def test_the_trace_of_the_torch_that_is_installed_is_read(tmp_path):
    subprocess.run([sys.executable, TRACES / "make_traces.py", tmp_path], check=True, capture_output=True)
    (path,) = tmp_path.iterdir()
    check(path)


SPAN = {"pid": 12, "tid": 34}
# as VizTracer writes: complete calls with a category of its own, in seconds' millionths with fractions
VIZTRACER = {
    "traceEvents": [
        {"ph": "M", **SPAN, "name": "process_name", "args": {"name": "MainProcess"}},
        {"ph": "M", **SPAN, "name": "thread_name", "args": {"name": "MainThread"}},
        {**SPAN, "ts": 100.5, "ph": "X", "cat": "FEE", "dur": 90.25, "name": "step (train.py:3)"},
        {**SPAN, "ts": 110.5, "ph": "X", "cat": "FEE", "dur": 50.0, "name": "load (train.py:9)"},
    ],
    "viztracer_metadata": {"overflow": False, "version": "1.0.4"},
    "file_info": {"files": {}, "functions": {}},
}
# as Perfetto's interface opens it: begin and end, counters, flows, marks; no categories
PERFETTO = {
    "displayTimeUnit": "ns",
    "traceEvents": [
        {"ph": "B", **SPAN, "ts": 100.5, "name": "step"},
        {"ph": "C", **SPAN, "ts": 101, "name": "memory", "args": {"used": 3}},
        {"ph": "B", **SPAN, "ts": 110.5, "name": "load", "args": {"rows": 5}},
        {"ph": "s", **SPAN, "ts": 111, "name": "to", "id": 1},
        {"ph": "i", **SPAN, "ts": 112, "name": "mark", "s": "t"},
        {"ph": "E", **SPAN, "ts": 160.5},
        {"ph": "E", **SPAN, "ts": 190.75},
    ],
}


@pytest.mark.parametrize(
    "written", [VIZTRACER, PERFETTO, PERFETTO["traceEvents"]], ids=["viztracer", "perfetto", "list"]
)
def test_calls_of_another_tool_nest_though_they_are_no_operators(written, tmp_path):
    path = tmp_path / "t.json"
    path.write_text(json.dumps(written))
    trace = read_trace(path)
    calls = trace.events.astype({"name": str})
    assert [name.split()[0] for name in calls["name"]] == ["step", "load"]
    assert calls["self_us"].tolist() == [40.25, 50.0]
    assert calls["parent"].tolist() == [-1, 0]
    for table in (trace.operators, trace.kernels, trace.allocations, operators_at_work(trace)):
        assert table.empty
    assert device_breakdown(trace).empty

"""Damaged profiles: one that cannot be read is refused, naming the file, and no command ends in a traceback."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import campaign
import pytest
from campaign import labkit

from labkit.hardware.calibration import Calibration
from labkit.profiling.profile import FACTS, KINETO, save_card
from labkit.runs import Provenance, RunWriter

TRACES = Path(__file__).parents[1] / "profiling" / "traces"


@pytest.fixture(scope="module")
def profiled(tmp_path_factory) -> Path:
    """A profiled run of two steps, `runs/tiny`, with a trace of torch's own."""
    run = RunWriter.create(
        tmp_path_factory.mktemp("profiled") / "runs", "tiny", config={"job": "tiny", "profile": {}}, tier=None, seed=0,
        budget={"name": "all-cores"}, devices=[], provenance=Provenance.now("measured"), software={},
    )  # fmt: skip
    run.finish("done", {"reason": "profiled"})
    (run.folder / "trace").mkdir()
    shutil.copy(TRACES / "torch-2.13.json.gz", run.folder / "trace" / KINETO)
    phases = [{"forward": [300.0, 280.0], "backward": [500.0, 450.0]}] * 2
    settings = {"skip": 2, "warmup": 1, "steps": 2}
    faults = {
        "event_cost_us": 0.5,
        "fault_cost_us": 0.1,
        "unprofiled_faults": [3, 4],
        "phase_faults": [{"forward": 3}] * 2,
    }
    facts = {"settings": settings, "device": "cpu", "phases_us": phases, "unprofiled_step_us": [900.0, 950.0], **faults}
    (run.folder / "trace" / FACTS).write_text(json.dumps(facts))
    save_card(run.folder, Calibration("A CPU", 2, 100.0, 120.0, 20.0, 1.5, "2026-11-21"))
    return run.folder.rename(run.folder.with_name("tiny"))


@pytest.fixture(scope="module")
def trace(tmp_path_factory) -> Path:
    """A folder with one small trace, whose every field is likely to be hit."""
    folder = tmp_path_factory.mktemp("trace") / "trace"
    folder.mkdir()
    step = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "ts": 0, "dur": 10, "pid": 1, "tid": 1}
    own = {
        "External id": 3,
        "Input Dims": [[2, 3], [3, 5]],
        "Input type": ["float", "float"],
        "Concrete Inputs": ["", ""],
    }
    events = [
        step,
        step | {"cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 5.5, "args": own},
        step | {"cat": "cuda_runtime", "name": "launch", "ts": 2, "dur": 1, "args": {"correlation": 7}},
        step | {"cat": "kernel", "name": "gemm", "ts": 3, "dur": 4, "pid": 0, "tid": 7, "args": {"correlation": 7}},
        {"ph": "i", "name": "[memory]", "ts": 4, "pid": 1, "tid": 1, "args": {"Bytes": 64, "Addr": 9, "Device Id": 0}},
        step | {"name": "ProfilerStep#2", "ts": 10},
    ]
    (folder / "trace.json").write_text(json.dumps({"traceEvents": events}, indent=1))
    return folder


def read_frames(folder: Path) -> list:
    from labkit.profiling.step_time import step_time
    from labkit.profiling.traces.device_time import device_breakdown
    from labkit.profiling.traces.memory import alive_at_peak
    from labkit.profiling.traces.trace import read_trace
    from labkit.profiling.work.operators import operators_at_work

    trace = read_trace(folder / "trace.json")
    frames = [trace.operators, trace.kernels, operators_at_work(trace), device_breakdown(trace)]
    return [frame.to_csv() for frame in [*frames, alive_at_peak(trace), step_time(trace).phases()]]


def show(run: Path) -> list:
    told = labkit("profile", "show", run, "--text")
    labkit("profile", "show", run, "--no-browser", "--out", run.with_name("page.html"))
    return [told]


def test_damaged_traces_are_read_or_refused(reader, trace, seeds):
    campaign.campaign(reader, read_frames, trace, seeds)


def test_damaged_profiles_are_shown_or_refused(reader, profiled, seeds):
    campaign.campaign(reader, show, profiled, seeds)

"""Damaged profiles: one that cannot be read is refused, naming the file, and no command ends in a traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import campaign
import pytest
from commands import labkit

PROFILED = """
import torch
from labkit.cli import main
raise SystemExit(main(["profile", "run", "--steps", "2", "--skip", "2", "--warmup", "1", "script.py"]))
"""
SCRIPT = """
import labkit, torch
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with labkit.Run("tiny") as run:
    for _ in range(8):
        loss = model(torch.rand(4, 8)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.step(loss, samples=4)
"""


@pytest.fixture(scope="module")
def profiled(tmp_path_factory) -> Path:
    """A profiled run, `runs/tiny`."""
    folder = tmp_path_factory.mktemp("profiled")
    (folder / "script.py").write_text(SCRIPT)
    subprocess.run([sys.executable, "-c", PROFILED], cwd=folder, check=True, capture_output=True)
    (run,) = (folder / "runs").iterdir()
    return run.rename(run.with_name("tiny"))


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
    frames = [trace.operators, trace.kernels, trace.phases, operators_at_work(trace), device_breakdown(trace)]
    return [frame.to_csv() for frame in [*frames, alive_at_peak(trace), step_time(trace).phases()]]


def show(run: Path) -> list:
    told = labkit("profile", "show", run, "--text")
    labkit("profile", "show", run, "--no-browser", "--out", run.with_name("page.html"))
    return [told]


def test_damaged_traces_are_read_or_refused(reader, trace, seeds):
    campaign.campaign(reader, read_frames, trace, seeds)


def test_damaged_profiles_are_shown_or_refused(reader, profiled, seeds):
    campaign.campaign(reader, show, profiled, seeds)

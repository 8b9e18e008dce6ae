"""Runs that start warm: the same losses to the bit, and no process left."""

import os
import sys

import pytest

from labkit import launch, tracking
from labkit.jobs import job_command
from labkit.runs import read_metrics, run_folders

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks safely, and has pidfds")
CORES = sorted({1, min(2, len(os.sched_getaffinity(0)))}) if hasattr(os, "sched_getaffinity") else [1]
STEPS = 6


def losses(folder, monkeypatch, *, warm: bool, job: str) -> list[list[float]]:
    """The losses of some steps in each precision and with each number of threads."""
    monkeypatch.setenv("LABKIT_WARM", "" if warm else "0")
    ways = [(f"cores={cores}", precision) for cores in CORES for precision in ("fp32", "bf16")]
    ways = ways if job == "dlrm" else ways[::3]
    # no max_seconds, by which the rate of learning would follow the clock
    how = {"runs_dir": folder, "seed": 3, "target": "none", "sample_hz": 1}
    commands = [job_command(job, budget=budget, precision=precision, **how) for budget, precision in ways]
    started = []

    def on_event(part: launch.Part, event: dict) -> None:
        if event["kind"] == "Ready":
            started.append(part.name)
        elif event["kind"] == "Progress" and event["point"]["step"] >= STEPS:
            engine.ask_to_end(part, "done", "it was long enough")

    with tracking.StopRequest() as stop:
        engine = launch.ScriptRuns("run", commands, stop=stop, on_event=on_event)
        engine.run()
    assert len(started) == len(commands)
    frames = [read_metrics([path]) for path in run_folders(folder)]
    return [frame[frame["name"] == "loss"].sort_values("step")["value"].tolist() for frame in frames]


@pytest.mark.parametrize("job", ["dlrm", "speech"])
def test_warm_and_cold_runs_have_the_same_losses_to_the_bit(tmp_path, monkeypatch, job, no_sampler):
    warm = losses(tmp_path / "warm", monkeypatch, warm=True, job=job)
    cold = losses(tmp_path / "cold", monkeypatch, warm=False, job=job)
    assert len(warm) == len(cold) > 1
    for of_warm, of_cold in zip(warm, cold, strict=True):
        common = min(len(of_warm), len(of_cold))  # it ends some steps later
        assert common >= STEPS
        assert of_warm[:common] == of_cold[:common]

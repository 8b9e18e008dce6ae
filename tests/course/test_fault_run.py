"""Faults that really happen: who dies, who lives, and that nothing is left. Nothing here depends on a speed."""

import math

import pandas as pd
import pytest
import torch

from labkit.errors import UserError
from labkit.launch import MODES
from labkit.process import JobProcess
from labkit_course.apparatus import (
    FAULTS,
    documented_behaviour,
    fault_run,
    fault_table,
    figure_fault_timeline,
    run_fault,
)
from labkit_course.apparatus.fault_run import Client


def test_a_segmentation_fault_ends_its_own_process_only_and_a_fresh_client_is_tried_again(monkeypatch):
    def refused_twice(name, program, *how):  # as an MPS server does for a while
        return JobProcess(name, "no_such_module" if name in ("fresh-after-1", "fresh-after-2") else program, *how)

    monkeypatch.setattr(fault_run, "JobProcess", refused_twice)
    crash = run_fault("segfault", "cpu-shared", seconds=0.25)
    jobs = crash.jobs.set_index("job")
    assert (jobs.status["faulty"], jobs.reason["faulty"]) == ("killed", "its process was ended by SIGSEGV")
    assert (jobs.status["neighbour-1"], crash.died) == ("alive", 0)
    assert crash.steps["at_s"].min() < 0 < crash.steps["at_s"].max()
    assert crash.attempts == 3 and crash.fresh_before_s > 0
    assert crash.fresh_after_s > crash.gone_s
    row = fault_table([crash]).iloc[0]
    assert (row["mode"], row["neighbours"], row["died"], row["left"]) == ("cpu-shared", 1, 0, 0)
    assert row["rate_after"] > 0 and row["provenance"] == "measured"


@pytest.mark.parametrize(
    ("fault", "mode", "status", "reason", "ended_by"),
    [
        ("leak", "cpu-pinned", "out_of_memory", "", "itself"),
        ("spin", "cpu-shared", "killed", "its process was ended by SIGKILL", "SIGKILL"),
        ("kill", "cpu-shared", "killed", "its process was ended by SIGKILL", "SIGKILL"),
    ],
)
def test_each_fault_ends_its_own_client_as_it_is_told(fault, mode, status, reason, ended_by):
    report = run_fault(fault, mode, seconds=0.2, recovery=False)
    jobs = report.jobs.set_index("job")
    assert (jobs.status["faulty"], jobs.status["neighbour-1"]) == (status, "alive")
    assert reason in jobs.reason["faulty"]
    assert (report.ended_by, report.died, report.left) == (ended_by, 0, 0)
    if FAULTS[fault].hangs:  # it is watched first, and is deaf to SIGTERM
        assert jobs.during["faulty"] == 0 and jobs.during["neighbour-1"] > 0
        assert report.gone_s > 0.2


def test_a_client_that_does_not_start_is_told(monkeypatch):
    monkeypatch.setattr(fault_run, "PROGRAM", "labkit.nowhere")
    with pytest.raises(UserError, match="ended before it was ready: its process ended with status 1"):
        run_fault("kill", "cpu-shared")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("sneeze", "cpu-shared", 1), "fault 'sneeze' is unknown: choose one of exception, segfault"),
        (("kill", "alone", 1), "no job shares the device"),
        (("gpu-access", "cpu-shared", 1), "choose segfault"),
        (("kill", "mpss", 1), "mode 'mpss' is unknown: did you mean 'mps'"),
        (("kill", "mps", 1), "Mode mps"),
        (("kill", "cpu-shared", 0), "neighbours is 0"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_starts(arguments, words, monkeypatch):
    monkeypatch.setattr(fault_run, "SupervisedJobs", lambda *_: pytest.fail("it was started"))
    cpu = fault_run.get_devices()[:1]
    monkeypatch.setattr(fault_run, "get_devices", lambda: cpu)
    fault, mode, neighbours = arguments
    with pytest.raises(UserError, match=words):
        run_fault(fault, mode, neighbours=neighbours)


def test_a_rate_is_of_its_window_and_of_nothing_else():
    client = Client(steps=[(0.0, 0), (1.0, 10), (2.0, 40)])
    assert client.rate(0.0, 1.0) == 10
    assert client.rate(1.5, 2.0) == 30
    assert client.rate(2.0, 3.0) == 0  # it said no more
    assert math.isnan(client.rate(1.0, 1.1))


@pytest.mark.gpu
@pytest.mark.parametrize("fault", ["gpu-access", "gpu-assert"])
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU, and there is none here")
def test_a_fault_in_a_kernel_ends_the_client_that_launched_it(fault):
    report = run_fault(fault, "naive", device="0", seconds=0.5)
    faulty = report.jobs.set_index("job").loc["faulty"]
    assert faulty["status"] == "failed"
    assert "CUDA" in faulty["reason"] or "Accelerator" in faulty["reason"]
    assert report.left == 0


def test_what_is_documented_says_where_and_that_it_was_not_run_here():
    frame = documented_behaviour()
    assert set(frame["provenance"]) == {"documented, not run here"}
    assert frame["url"].str.startswith("https://").all()
    assert (frame[["source", "section", "documented", "neighbours"]].map(len) > 1).all(axis=None)
    assert {"naive", "mps", "mig"} <= set(frame["mode"]) <= {*MODES, "any"}
    assert set(frame["fault"]) <= {*FAULTS, "uncorrectable memory error"}


def test_each_client_has_a_line_and_the_finding_has_the_rates():
    steps = pd.DataFrame({"job": ["faulty"] * 4 + ["neighbour-1"] * 4, "at_s": [-0.5, -0.1, 0.5, 1.5] * 2})
    steps = steps.assign(steps_per_s=[10.0, 10.0, 0.0, 0.0, 10.0, 12.0, 5.0, 20.0], provenance="measured")
    figure = figure_fault_timeline(steps, gone_s=1.0)
    assert [trace.name for trace in figure.data] == ["faulty · measured", "neighbour-1 · measured"]
    assert list(figure.data[1].y) == [10.0, 12.0, 5.0, 20.0]
    assert "neighbour-1: 11 steps/s before, 5 until the client was gone, 20 after" in figure.layout.meta["finding"]

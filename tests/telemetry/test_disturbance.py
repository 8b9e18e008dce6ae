"""What other programs took of a run's cores."""

import subprocess
import sys
import time

import psutil
import pytest

from labkit.runs import disturbance_text, worse
from labkit.telemetry import disturbance
from labkit.telemetry.disturbance import Look


@pytest.mark.parametrize(
    ("cores", "count", "seconds", "busy", "own", "share"),
    [
        *((2, None, 1, 0.8, own, share) for own, share in ((0.0, 0.4), (0.3, 0.25), (0.8, 0.0), (0.9, 0.0))),
        (16, None, 10, 160.0, 150.0, 1 / 16),  # the run's threads wait for the one that shares a core
        (8, 2, 10, 60.0, 0.0, 0.0),  # others may have the cores that a quota keeps from the run
        (8, 4, 10, 60.0, 0.0, 0.5),
    ],
)
def test_what_is_busy_and_not_the_runs_is_of_others(monkeypatch, cores, count, seconds, busy, own, share):
    told = [{"at": 5.0, "busy": 10.0, "own": 3.0}, {"at": 5.0 + seconds, "busy": 10 + busy, "own": 3 + own}]
    monkeypatch.setattr(Look, "_now", lambda self: {"programs": {}} | told.pop(0))
    found = Look(count, cores=range(cores)).others()
    assert found["cpu_share"] == pytest.approx(share, abs=1e-3)
    assert found["disturbed"] is bool(disturbance_text(found)) is (share > 0)


def test_what_a_run_computes_on_other_cores_hides_nobody_on_its_own(monkeypatch):
    cores, here = disturbance.own_affinity(), psutil.Process().pid  # stands for another program
    told = [{"at": float(i), "busy": 1.0 * i, "own": 9.0 * i, "programs": {here: 0.5 * i}} for i in range(2)]
    monkeypatch.setattr(Look, "_now", lambda self: told.pop(0))
    assert Look(cores=cores).others()["cpu_share"] == pytest.approx(0.5 / len(cores), abs=1e-3)


def test_a_busy_process_is_named_and_is_of_others_unless_the_run_started_it(monkeypatch):
    code, deadline = [sys.executable, "-c"], time.monotonic() + 60
    with subprocess.Popen([*code, "while True: pass"]) as busy, subprocess.Popen([*code, "input()"], stdin=-1) as run:
        # the busiest of all, whatever else runs beside the tests
        seen = psutil.Process(busy.pid)
        monkeypatch.setattr(disturbance.psutil, "process_iter", lambda: [seen])
        ours, family, look = Look(), Look(root=busy.pid), Look(root=run.pid)
        while time.monotonic() < deadline and seen.cpu_times().user < 0.5:
            time.sleep(0.2)
        found = look.others()
        alone, own = (each._now()["own"] - each._before["own"] for each in (family, ours))
        busy.kill()
        run.kill()
    assert found["cpu_share"] > 0 and f"(process {busy.pid})" in disturbance_text(found | {"disturbed": True})
    tick = 0.05  # both are counted in hundredths of a second, one after the other
    assert own + tick >= alone > 0.1
    assert ours._now()["own"] + tick >= ours._before["own"] + alone  # ended, and still counted


def test_only_what_disturbed_is_told_and_of_two_processes_the_worse_counts():
    on_gpu = {"largest": None, "on_gpu": ["train (process 7)"]}
    calm, disturbed = ({"disturbed": share > 0.1, "cpu_share": share} | on_gpu for share in (0.02, 0.2))
    assert worse(None, None) is None
    assert worse(None, calm) is calm and worse(disturbed, calm) is disturbed
    assert disturbance_text(disturbed) == (
        "other programs took 20% of its cores and train (process 7) also had its GPU open"
    )
    assert disturbance_text(calm | {"disturbed": True}) == "train (process 7) also had its GPU open"

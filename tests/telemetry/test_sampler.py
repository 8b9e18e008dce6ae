"""The sampler of a run, and what other programs took of its cores."""

import mmap
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import psutil
import pytest
from processes import wait_for

from labkit.runs import disturbance_text, read_telemetry, worse
from labkit.telemetry import disturbance
from labkit.telemetry.disturbance import Look
from labkit.telemetry.energy import peak_memory
from labkit.telemetry.sampler import MOST_RESTARTS, SampleClock, Sampler
from labkit.telemetry.sources.host import forget_peak_memory


def test_the_sampler_writes_while_the_block_runs_counts_what_came_too_late_and_ends_with_it(tmp_path):
    before = {child.pid for child in psutil.Process().children()}
    with Sampler(tmp_path, hz=20) as sampler:
        ballast = bytearray(50 * 2**20)
        os.kill(sampler._child.pid, signal.SIGSTOP)
        time.sleep(0.5)  # ten samples fall due
        os.kill(sampler._child.pid, signal.SIGCONT)
    assert {child.pid for child in psutil.Process().children()} <= before
    frame = read_telemetry([tmp_path])
    assert {"cpu_percent", "memory_resident", "memory_used"} <= set(frame["counter"])
    assert set(frame["pid"]) == {os.getpid()}
    assert frame["time_ns"].is_monotonic_increasing and frame["time_ns"].nunique() >= 2  # at the start and at the end
    missing = frame[frame["value"].isna()]
    assert missing["note"].notna().all() and not missing.duplicated(["device", "counter"]).any()
    assert peak_memory(tmp_path) >= len(ballast)
    assert frame.query("counter == 'samples_missed'")["value"].sum() >= 8


KILLED = """
import os, signal, subprocess, sys; from pathlib import Path; from labkit.telemetry.sampler import Sampler
signal.signal(signal.SIGINT, lambda *_: None); real = subprocess.Popen
def popen(*a, **k):
    child = real(*a, **k); os.killpg(0, signal.SIGINT); return child  # while it still imports
subprocess.Popen = popen
with Sampler(Path(sys.argv[1])) as sampler:
    print(sampler.failure, sampler._child.pid, flush=True); os.kill(os.getpid(), 9)
"""


def test_ctrl_c_in_the_terminal_does_not_reach_the_sampler_and_a_killed_job_leaves_none(tmp_path):
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, start_new_session=True)
    failure, pid = done.stdout.split()
    assert failure == "None", done.stderr
    _, alive = psutil.wait_procs([psutil.Process(int(pid))] if psutil.pid_exists(int(pid)) else [], timeout=20)
    assert not alive
    assert len(read_telemetry([tmp_path])) > 0


def test_a_sampler_that_cannot_start_or_hangs_is_given_up_and_says_why(tmp_path, monkeypatch):
    (tmp_path / "telemetry").write_text("in the way")
    with Sampler(tmp_path) as sampler:
        assert "telemetry" in sampler.failure
    (tmp_path / "python").write_text("#!/bin/sh\nexec sleep 600\n")
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setattr("labkit.telemetry.sampler.START_S", 0.5)
    monkeypatch.setattr("labkit.process.child.sys.executable", str(tmp_path / "python"))
    before = psutil.Process().children()
    with Sampler(tmp_path / "run") as sampler:
        assert sampler.failure == "it took no sample within 0.5 s"
    assert psutil.Process().children() == before


def disk_full(kind, what):
    raise OSError("the disk is full")


@pytest.mark.parametrize(
    ("on_fault", "failure"),
    [(print, None), (disk_full, "could not record sampler_died: the sampler ended with -9 (the disk is full)")],
)
def test_a_sampler_that_dies_is_started_again_with_its_gap_marked(tmp_path, on_fault, failure):
    with Sampler(tmp_path, on_fault=on_fault) as sampler:
        first = sampler._child.pid
        os.kill(first, signal.SIGKILL)
        wait_for(lambda: sampler.deaths and sampler._child.pid != first)
    assert sampler.failure == failure
    assert sampler.deaths == ["the sampler ended with -9"]
    assert read_telemetry([tmp_path]).query("counter == 'samplers_died'")["value"].tolist() == [1]


def test_a_sampler_that_dies_again_and_again_is_given_up(tmp_path):
    with Sampler(tmp_path) as sampler:
        killed = set()
        while sampler._watcher.is_alive():
            if sampler._child.pid not in killed:
                killed.add(sampler._child.pid)
                os.kill(sampler._child.pid, signal.SIGKILL)
            time.sleep(0.02)
    assert sampler.failure and len(sampler.deaths) <= MOST_RESTARTS


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="needs Linux' /proc/self/clear_refs")
def test_memory_used_before_the_run_is_not_its_peak(tmp_path):
    ballast = mmap.mmap(-1, 400 * 2**20)  # which goes back to the system, whatever malloc was told to keep
    ballast[:: 2**12] = b"x" * len(ballast[:: 2**12])  # touched, so resident
    with Sampler(tmp_path / "with"):
        pass
    ballast.close()
    forget_peak_memory()
    with Sampler(tmp_path / "without"):
        pass
    assert peak_memory(tmp_path / "with") - peak_memory(tmp_path / "without") > 300 * 2**20


def test_samples_come_on_a_grid_and_what_came_late_is_missed_and_not_made_up_for():
    clock, date, ms = SimpleNamespace(ns=7), SimpleNamespace(ns=1_000), 10**6
    points = SampleClock(10, lambda: clock.ns, lambda: date.ns)
    for number in range(100):
        clock.ns += round(1e9 * points.wait_s())
        assert clock.ns - 7 == number * 100 * ms
        assert points.arrive() == 0
        clock.ns += 30 * ms + number  # a sample takes its time, never the same
    date.ns = 0  # a system clock that is set moves no sample
    assert points.now_ns() == 1_000 + clock.ns - 7
    clock.ns = 7 + 10_250 * ms
    assert points.wait_s() == 0
    assert points.arrive() == 2  # those at 10.0 and 10.1 s; this is the one of 10.2, late
    assert points.wait_s() == 0.05


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

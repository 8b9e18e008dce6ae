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

from labkit.runs import read_telemetry
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

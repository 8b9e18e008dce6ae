import mmap
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import psutil
import pytest

from labkit.runs import read_telemetry
from labkit.telemetry import Sampler, forget_peak_memory, peak_memory
from labkit.telemetry.sampler import MOST_RESTARTS
from labkit.telemetry.sampling import Schedule


def samples(folder, counter: str) -> list[float]:
    frame = read_telemetry([folder])
    return frame[frame["counter"] == counter]["value"].tolist()


def wait_for(condition) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


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
    assert frame["time_ns"].is_monotonic_increasing
    assert len(set(frame["time_ns"])) >= 2  # one at the start, one at the end at least
    missing = frame[frame["value"].isna()]
    assert missing["note"].notna().all()
    assert not missing.duplicated(["device", "counter"]).any()
    assert peak_memory(tmp_path) >= len(ballast)
    assert sum(samples(tmp_path, "samples_missed")) >= 8


def job(folder, code: str) -> subprocess.CompletedProcess:
    """A process of its own group that samples itself, by the name `sampler`."""
    code = (
        "import os, signal, subprocess, sys; from pathlib import Path; from labkit.telemetry import Sampler\n"
        "sampler = Sampler(Path(sys.argv[1]))\n" + code
    )
    command = [sys.executable, "-c", code, str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False, start_new_session=True)


def test_a_killed_job_leaves_no_sampler(tmp_path):
    done = job(tmp_path, "sampler.__enter__(); print(sampler._child.pid, flush=True); os.kill(os.getpid(), 9)")
    pid = int(done.stdout)
    _, alive = psutil.wait_procs([psutil.Process(pid)] if psutil.pid_exists(pid) else [], timeout=20)
    assert not alive
    assert len(read_telemetry([tmp_path])) > 0


def test_ctrl_c_in_the_terminal_does_not_reach_the_sampler_not_even_while_it_imports(tmp_path):
    done = job(
        tmp_path,
        "signal.signal(signal.SIGINT, lambda *_: None); real = subprocess.Popen\n"
        "def popen(*a, **k):\n"
        "    child = real(*a, **k); os.killpg(0, signal.SIGINT); return child\n"
        "subprocess.Popen = popen\n"
        "with sampler: pass\n"
        "print(sampler.failure)",
    )
    assert done.stdout == "None\n", done.stderr
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


def test_a_sampler_that_dies_is_started_again_with_its_gap_marked_and_given_up_in_the_end(tmp_path):
    with Sampler(tmp_path) as sampler:
        first = sampler._child.pid
        os.kill(first, signal.SIGKILL)
        wait_for(lambda: sampler.deaths and sampler._child.pid != first)
    assert sampler.failure is None
    assert sampler.deaths == ["the sampler ended with -9"]
    assert samples(tmp_path, "samplers_died") == [1]
    with Sampler(tmp_path / "again") as sampler:
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
    schedule = Schedule(10, lambda: clock.ns, lambda: date.ns)
    for number in range(100):
        clock.ns += round(1e9 * schedule.wait_s())
        assert clock.ns - 7 == number * 100 * ms
        assert schedule.arrive() == 0
        clock.ns += 30 * ms + number  # a sample takes its time, never the same
    date.ns = 0  # a system clock that is set moves no sample
    assert schedule.now_ns() == 1_000 + clock.ns - 7
    clock.ns = 7 + 10_250 * ms
    assert schedule.wait_s() == 0
    assert schedule.arrive() == 2  # those at 10.0 and 10.1 s; this is the one of 10.2, late
    assert schedule.wait_s() == 0.05

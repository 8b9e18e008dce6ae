"""The sampler of a run, what other programs took of its cores, and the energy that its samples say."""

import mmap
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import psutil
import pytest
from made_up import new_run, write_samples
from processes import wait_for

from labkit.runs import RunWriter, disturbance_text, read_telemetry, worse
from labkit.telemetry import disturbance
from labkit.telemetry.disturbance import Look
from labkit.telemetry.energy import Sample, cpu_energy, gpu_energy, peak_memory, run_energy
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
    monkeypatch.setenv("LABKIT_WARM", "0")
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


def test_samples_come_on_a_grid_and_what_came_late_is_missed_and_not_made_up_for(monkeypatch):
    clock, date, ms = SimpleNamespace(ns=7), SimpleNamespace(ns=1_000), 10**6
    told = SimpleNamespace(monotonic_ns=lambda: clock.ns, time_ns=lambda: date.ns)
    monkeypatch.setattr("labkit.telemetry.sampler.time", told)
    points = SampleClock(10)
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


S = 10**9
COUNTER, INTEGRATED = "NVML energy counter", "NVML power, integrated"
POWER = [Sample(0, 100.0), Sample(2 * S, 200.0), Sample(3 * S, 200.0)]
RESET = [Sample(0, 5e6), Sample(S, 5e6 + 100), Sample(2 * S, 20.0), Sample(3 * S, 50.0)]
# of two processes of one run, between which the machine did something else
TWO = [Sample(0, 0.0), Sample(S, 100.0), Sample(9 * S, 5000.0, process=1), Sample(10 * S, 5100.0, process=1)]
SLEPT = [sample._replace(process=0, time_ns=sample.time_ns * 10) for sample in TWO]
PACKAGES = {
    "cpu_energy_intel-rapl:0": [Sample(0, 90.0), Sample(1, 95.0), Sample(3, 108.0)],
    "cpu_energy_intel-rapl:1": [Sample(0, 0.0), Sample(3, 7.0)],
}
NO_RAPL = [Sample(0, None, "no RAPL energy counter on this machine")]
BOARD = [Sample(0, 5.0), Sample(2 * S, 7.0)]


@pytest.mark.parametrize(
    ("of", "samples", "joules", "source", "note"),
    [
        (gpu_energy, {"energy": [Sample(0, 1000.0), Sample(3 * S, 1500.0)], "power": POWER}, 500, COUNTER, "host"),
        (gpu_energy, {"energy": [Sample(0, None, "not supported")], "power": POWER}, 500, INTEGRATED, "host"),
        # a counter that stands still while power is drawn is not believed
        (gpu_energy, {"energy": [Sample(0, 7.0), Sample(S, 7.0)], "power": POWER}, 500, INTEGRATED, "host"),
        (gpu_energy, {"energy": RESET}, 130, COUNTER, "restarted at zero"),  # a GPU that was reset takes no energy back
        (gpu_energy, {"energy": [Sample(0, None, "not supported")], "power": []}, None, None, "not supported"),
        (gpu_energy, {"energy": TWO}, 200, COUNTER, ""),
        (gpu_energy, {"board_power": BOARD}, 12, "Jetson board power, integrated", "the whole module"),
        (gpu_energy, {"energy": SLEPT}, 200, COUNTER, ""),
        (gpu_energy, {"power": [sample._replace(value=50.0) for sample in TWO]}, 100, INTEGRATED, ""),
        (cpu_energy, PACKAGES, 18 + 7, "RAPL", ""),
        (cpu_energy, {"cpu_energy": NO_RAPL}, None, None, "not measurable: no RAPL energy counter on this machine"),
        (cpu_energy, {"board_power": BOARD, "cpu_energy": NO_RAPL}, 12, "Jetson board power, integrated", ""),
    ],
)
def test_energy_is_counted_or_integrated_and_never_both(of, samples, joules, source, note):
    board = {"board_power": samples["board_power"]} if "board_power" in samples else {}
    energy = of({} if board else samples, board) if of is gpu_energy else of(samples)
    assert (energy.value_j, energy.source) == (joules, source)
    assert note in energy.note


def gpu_run(tmp_path, **device) -> RunWriter:
    writer = new_run(tmp_path, torch_name="cuda:0", devices=[{"torch_name": "cuda:0"} | device])
    write_samples(writer.folder, "GPU-1", "energy", {0: 0.0, 1: 10.0})
    write_samples(writer.folder, "GPU-2", "energy", {0: 0.0, 1: 1000.0})
    return writer


@pytest.mark.parametrize(
    ("device", "joules", "note"),
    [
        ({"uuid": "GPU-2"}, 1000.0, "the GPU alone"),
        ({"uuid": None}, None, "not measurable"),  # not mixed with another
        ({"uuid": "MIG-7", "mig_parent_uuid": "GPU-1"}, 10.0, "other slices included"),
    ],
)
def test_a_run_counts_its_own_gpu(tmp_path, device, joules, note):
    energy = run_energy(gpu_run(tmp_path, **device).folder)
    assert energy.value_j == joules and note in energy.note


def test_a_run_resumed_on_another_gpu_counts_each_where_it_computed_and_all_or_nothing(tmp_path):
    writer = gpu_run(tmp_path, uuid="GPU-1")
    writer.event("resumed", step=0, parts=0, devices=[{"torch_name": "cuda:0", "uuid": "GPU-2"}])
    # in a container, the trainer has the same pid each time
    begin = time.time_ns() // S + 1
    write_samples(writer.folder, "GPU-1", "energy", {begin: 0.0, begin + 1: 5.0})
    write_samples(writer.folder, "GPU-2", "energy", {begin: 0.0, begin + 1: 300.0})
    assert run_energy(writer.folder).value_j == 10.0 + 300.0
    writer.event("fault", kind="sampler", what="killed")
    assert run_energy(writer.folder).value_j is peak_memory(writer.folder) is None
    assert "the sampler failed (killed)" in run_energy(writer.folder).note
    # a Jetson's GPU counts the board
    writer = gpu_run(tmp_path, uuid="jetson")
    write_samples(writer.folder, "host", "board_power", {0: 7.0, 2: 7.0}, unit="W")
    write_samples(writer.folder, "jetson", "sm_clock", {0: 900.0, 2: 900.0}, unit="MHz")
    energy = run_energy(writer.folder)
    assert (energy.value_j, energy.source) == (14.0, "Jetson board power, integrated")


def test_samples_that_end_long_before_the_run_do_not_stand_for_it(tmp_path):
    """A GPU that is lost after a second of 40, and a sampler that is gone without a word."""
    folder = (writer := gpu_run(tmp_path, uuid="GPU-1")).folder
    write_samples(folder, "host", "memory_resident", {0: 1.0, 40: 2.0}, scope="process", unit="bytes")
    energy = run_energy(folder)
    assert (energy.value_j, energy.note) == (None, "the samples of its last 39 s, of 40, are missing")
    write_samples(folder, "GPU-1", "power", {0: 7.0, 35: 7.0}, unit="W")  # all but the last seconds
    assert (run_energy(folder).value_j, peak_memory(folder)) == (35 * 7.0, 2)
    writer.event("ended", status="failed", reason="killed", ended_by="killed")  # is written when somebody finds it
    assert (run_energy(folder).value_j, peak_memory(folder)) == (35 * 7.0, 2)
    writer.event("evaluated", wall_s=100.0)
    assert run_energy(folder).value_j is peak_memory(folder) is None
    writer.record.budget = {"torch_name": "cpu"}
    writer.record.save(folder)
    write_samples(folder, "host", "cpu_energy_intel-rapl:0", {0: 1.0, 40: 2.0})
    assert "not measurable: the samples of its last" in run_energy(folder).note

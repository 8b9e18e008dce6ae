"""What a run's sampler adds to its record, and what happens when it or the disk fails."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time

import psutil
import pytest

import labkit
from labkit.errors import UserError
from labkit.runs import RunWriter, read_events, read_run, read_telemetry
from labkit.telemetry.others import Look, Others
from labkit.tracking import recording
from labkit.tracking.events import Notice
from labkit.tracking.harness import Harness
from labkit.tracking.stop import StopRequest


@pytest.fixture
def sampled(tmp_path):
    """Runs a few steps in a harness, with a real sampler; (folder, notices)."""

    def run(at_step=lambda: None, **options):
        told = []
        with (
            Harness(StopRequest(), tmp_path, lambda event: told.append(event), **options).wrapped(),
            labkit.Run("t") as open_run,
        ):
            for _ in range(3):
                open_run.step(0.5, samples=1)
                at_step()
        return open_run.folder, [event.text for event in told if isinstance(event, Notice)]

    return run


def samplers() -> list[psutil.Process]:
    found = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            found += [child] if "labkit.telemetry.sampling" in child.cmdline() else []
    return found


def test_a_run_is_sampled_as_often_as_asked(sampled):
    folder, notices = sampled(lambda: time.sleep(0.3), sample_hz=50)
    assert notices == []
    assert read_telemetry([folder])["time_ns"].nunique() > 10  # two a second, unless asked
    assert read_run(folder).result["peak_memory_bytes"] > 50 * 2**20


def test_a_run_without_its_sampler_goes_on_and_says_so(sampled, monkeypatch):
    monkeypatch.setattr("sys.executable", "/bin/false")
    folder, notices = sampled()
    record = read_run(folder)
    assert (record.status, record.result["peak_memory_bytes"]) == ("done", None)
    assert any("the sampler failed" in notice for notice in notices)


def test_a_sampler_killed_midway_is_started_again_and_its_gap_is_told(sampled):
    killed = []

    def kill_once():
        if not killed:
            killed.extend(samplers())
            killed[0].kill()
            deadline = time.monotonic() + 60
            while not set(samplers()) - set(killed):
                assert time.monotonic() < deadline, "none was started again"
                time.sleep(0.02)

    folder, notices = sampled(kill_once)
    assert read_run(folder).result["peak_memory_bytes"] > 0
    (fault,) = (event for event in read_events(folder) if event["event"] == "fault")
    assert (fault["kind"], fault["what"]) == ("sampler_died", "the sampler ended with -9")
    assert any("its samples have a gap" in notice for notice in notices)


def test_a_sampler_that_dies_again_and_again_leaves_no_half_measurement(sampled, monkeypatch):
    monkeypatch.setattr("labkit.telemetry.sampler.MOST_RESTARTS", 0)
    folder, notices = sampled(lambda: [sampler.kill() for sampler in samplers()])
    result = read_run(folder).result
    assert (result["peak_memory_bytes"], result["energy_j"]) == (None, None)
    assert "sampler failed" in result["energy_note"]
    assert any("sampler failed" in notice for notice in notices)


def test_a_disk_that_fills_up_at_the_end_leaves_no_run_running(runs, monkeypatch):
    real = RunWriter.event

    def event(self, name, /, **values):
        if name == "ended":
            raise UserError("the disk is full")
        real(self, name, **values)

    monkeypatch.setattr(RunWriter, "event", event)
    with pytest.raises(UserError, match="disk is full"), labkit.Run("t", runs_dir=runs) as run:
        run.step(0.5, samples=1)
    assert read_run(run.folder).status == "done"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux can cap a process' memory")
@pytest.mark.parametrize(
    ("takes", "status"),
    [
        ("while True: kept.append(np.ones(2**20)); run.step(0.5, samples=1)", 2),  # as torch does, piece by piece
        ("bytearray(2**32)", -9),  # at once, so that no signal is heard
    ],
)
def test_a_run_that_its_memory_budget_ends_says_so_in_its_record(tmp_path, takes, status):
    (tmp_path / "greedy.py").write_text(
        "import labkit, numpy as np\n"
        "with labkit.Run('t') as run:\n"
        "    kept = []\n"
        "    run.step(0.5, samples=1)\n"
        f"    {takes}\n"
    )
    command = ["-m", "labkit", "run", "--budget", "cores=1,memory=1GiB", "greedy.py"]
    said = subprocess.run([sys.executable, *command], cwd=tmp_path, capture_output=True, text=True)
    assert said.returncode == status
    (folder,) = (tmp_path / "runs").iterdir()
    record = read_run(folder)
    assert record.status == "failed"
    assert "its budget 'cores=1,memory=1GiB' allows (1 GiB)" in record.result["reason"]
    assert record.result["reason"] in said.stderr
    assert read_events(folder)[-1]["event"] == "ended"
    assert [event["kind"] for event in read_events(folder) if event["event"] == "fault"] == ["error"]


@pytest.mark.parametrize("share", [0.02, 0.4])
def test_what_other_programs_took_is_recorded(runs, monkeypatch, share):
    class Told(Look):
        def others(self):
            return Others(share, 0.0, 0.1, None, "stress (process 7)" if share > 0.1 else None)

    monkeypatch.setattr(recording, "Look", Told)
    with labkit.Run("t", runs_dir=runs) as run:
        run.step(0.5, samples=1)
    others = read_run(run.folder).result["others"]
    assert (others["cpu_share"], others["disturbed"]) == (share, share > 0.1)


def test_jobs_that_share_a_device_by_plan_are_no_others(tmp_path):
    alone = Harness(StopRequest(), tmp_path)
    pinned = Harness(StopRequest(), tmp_path, collocation={"mode": "cpu-pinned"})
    shared = Harness(StopRequest(), tmp_path, collocation={"mode": "cpu-shared"})
    assert alone.family == pinned.family == os.getpid()
    assert shared.family == os.getppid()

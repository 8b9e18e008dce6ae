"""What a run's sampler adds to its record, and what happens when it or the disk fails."""

import os
import subprocess
import sys
import time

import pytest
from folders import in_harness

import labkit
from labkit.runs import read_events, read_run, read_telemetry, run_folders
from labkit.telemetry import Look
from labkit.tracking.events import Notice
from labkit.tta import run_table


@pytest.fixture
def sampled(tmp_path):
    """Runs a few steps in a harness, with a real sampler; (folder, notices)."""

    def run(at_step=lambda: None, **options):
        told = []
        with in_harness(tmp_path, None, told.append, **options), labkit.Run("t") as open_run:
            for _ in range(3):
                open_run.step(0.5, samples=1)
                at_step()
        return open_run.folder, [event.text for event in told if isinstance(event, Notice)]

    return run


def test_a_run_is_sampled_as_often_as_asked(sampled):
    folder, notices = sampled(lambda: time.sleep(0.3), sample_hz=50)
    assert notices == []
    assert read_telemetry([folder])["time_ns"].nunique() > 10  # two a second, unless asked
    assert read_run(folder).result["peak_memory_bytes"] > 50 * 2**20


def test_a_run_without_its_sampler_goes_on_and_says_so(sampled, monkeypatch):
    monkeypatch.setattr("sys.executable", "/bin/false")
    folder, notices = sampled()
    record = read_run(folder)
    result = record.result
    assert (record.status, result["peak_memory_bytes"], result["energy_j"]) == ("done", None, None)
    assert any("the sampler failed" in notice for notice in notices)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux can cap a process' memory")
def test_a_run_that_its_memory_budget_ends_says_so_in_its_record(tmp_path):
    (tmp_path / "greedy.py").write_text(
        "import labkit, numpy as np\n"
        "with labkit.Run('t') as run:\n"
        "    kept = []\n"
        "    while True: kept.append(np.ones(2**20)); run.step(0.5, samples=1)\n"  # piece by piece, as torch does
    )
    command = ["-m", "labkit", "run", "--budget", "cores=1,memory=1GiB", "greedy.py"]
    said = subprocess.run([sys.executable, *command], cwd=tmp_path, capture_output=True, text=True)
    assert said.returncode == 2
    (folder,) = (tmp_path / "runs").iterdir()
    record, events = read_run(folder), read_events(folder)
    assert record.status == "failed"
    assert "its budget 'cores=1,memory=1GiB' allows (1 GiB)" in record.result["reason"]
    assert record.result["reason"] in said.stderr
    assert events[-1]["event"] == "ended"
    assert [event["kind"] for event in events if event["event"] == "fault"] == ["error"]


def test_what_other_programs_took_is_recorded_and_jobs_beside_it_by_plan_are_none(runs, monkeypatch):
    class Told(Look):
        def others(self):
            return super().others() | {"cpu_share": 0.4, "disturbed": True}

    monkeypatch.setattr("labkit.telemetry.Look", Told)
    with labkit.Run("t", runs_dir=runs) as run:
        run.step(0.5, samples=1)
    others = read_run(run.folder).result["others"]
    assert (others["cpu_share"], others["disturbed"]) == (0.4, True)
    for mode, family in (("cpu-pinned", os.getpid()), ("cpu-shared", os.getppid())):
        with in_harness(runs, collocation={"mode": mode}) as harness:
            assert harness.family == family


def test_a_power_limit_is_a_setting_of_the_training_and_tells_series_apart(runs):
    for limit in (100.0, 200.0):
        with in_harness(runs, power_limit_w=limit), labkit.Run("t", target="auc >= 0.7", confirm=1) as run:
            run.step(samples=1)
            run.evaluate(auc=0.8)
    assert read_run(run.folder).config["train"]["power_limit_w"] == 200
    table = run_table(run_folders(runs))
    assert sorted(table["setting"]) == ["power_limit_w 100.0", "power_limit_w 200.0"]

"""Runs that start warm: the same losses to the bit, and no process left."""

import contextlib
import os
import random
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from processes import DEADLINE_S, marked_where, wait_for

from labkit import launch, tracking
from labkit.jobs import job_command
from labkit.launch import engine
from labkit.process.template import ForkedProcess, own_template
from labkit.runs import read_metrics, run_folders

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks safely, and has pidfds")
MOST_CORES = min(2, len(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else 1
STEPS = 6


def losses(folder, monkeypatch, *, warm: bool) -> list[list[float]]:
    """The losses of some steps of each job, in another precision and with another number of threads."""
    monkeypatch.setenv("LABKIT_WARM", "" if warm else "0")
    # no max_seconds, by which the rate of learning would follow the clock
    how = {"runs_dir": folder, "seed": 3, "target": "none", "sample_hz": 1}
    commands = [
        job_command("dlrm", budget="cores=1", precision="bf16", data="synthetic-small", **how),
        job_command("speech", budget=f"cores={MOST_CORES}", precision="fp32", **how),
    ]
    started = []

    def on_event(part: launch.Part, event: dict) -> None:
        if event["kind"] == "Ready":
            started.append(part.name)
            forked = "labkit.process.forking" in psutil.Process(runs.pids[part.name]).cmdline()
            assert forked == warm
        elif event["kind"] == "Progress" and event["point"]["step"] >= STEPS:
            runs.ask_to_end(part, "done", "it was long enough")

    with tracking.StopRequest() as stop:
        runs = launch.ScriptRuns("run", commands, stop=stop, on_event=on_event)
        runs.run()
    assert len(started) == len(commands)
    frames = [read_metrics([path]) for path in run_folders(folder)]
    return [frame[frame["name"] == "loss"].sort_values("step")["value"].tolist() for frame in frames]


def test_warm_and_cold_runs_have_the_same_losses_to_the_bit(tmp_path, monkeypatch, no_sampler):
    warm = losses(tmp_path / "warm", monkeypatch, warm=True)
    cold = losses(tmp_path / "cold", monkeypatch, warm=False)
    assert len(warm) == len(cold) > 1
    for of_warm, of_cold in zip(warm, cold, strict=True):
        common = min(len(of_warm), len(of_cold))  # it ends some steps later
        assert common >= STEPS
        assert of_warm[:common] == of_cold[:common]


@pytest.mark.parametrize("in_notebook", [True, False])
def test_the_first_run_of_a_notebook_has_a_template_and_a_single_one_elsewhere_none(tmp_path, monkeypatch, in_notebook):
    supervisors = []
    monkeypatch.setattr("labkit.process.template._own", None)
    monkeypatch.setattr("labkit.tracking.in_notebook", lambda: in_notebook)
    command = job_command("dlrm", runs_dir=tmp_path, max_seconds=0.1, target="none", data="synthetic-small")
    with tracking.StopRequest() as stop:
        runs = launch.ScriptRuns(
            "run", [command], stop=stop, on_event=lambda *_: supervisors.append(runs._executor._child._process)
        )
        runs.run()
    assert isinstance(supervisors[0], ForkedProcess) == in_notebook
    assert bool(own_template()) == in_notebook
    if in_notebook:
        own_template().close()


def test_a_users_script_starts_warm_only_where_it_is_asked_for(monkeypatch):
    jobs_own, users = job_command("dlrm"), tracking.ScriptCommand(script=__file__)
    for variable, expected in (("", [True, False]), ("1", [True, True]), ("0", [False, False])):
        monkeypatch.setenv("LABKIT_WARM", variable)
        assert [engine.starts_warm(command) for command in (jobs_own, users)] == expected
    assert not engine.starts_warm(jobs_own, {"OMP_WAIT_POLICY": "PASSIVE"}), "its libraries read it while they load"


KILLS = int(os.environ.get("LABKIT_KILLS", 200 if "LABKIT_SOAK" in os.environ else 2))
LISTED = """
import sys
from labkit import launch, tracking
from labkit.jobs import job_command
commands = [job_command("dlrm", runs_dir=sys.argv[1], seed=seed, max_seconds=1, target="none") for seed in range(2)]
with tracking.StopRequest() as stop:
    launch.ScriptRuns("run", commands, stop=stop, on_event=lambda part, event: None).run()
"""


def test_whichever_process_of_warm_runs_is_killed_and_whenever_nothing_is_left(tmp_path):
    chance, temporary = random.Random(11), tmp_path / "tmp"
    temporary.mkdir()
    environment = os.environ | {"LABKIT_WARM": "", "TMPDIR": str(temporary)}

    def begun(folder: Path) -> subprocess.Popen:
        command = [sys.executable, "-c", LISTED, str(folder)]
        return subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, start_new_session=True)

    began = time.monotonic()
    assert begun(tmp_path / "whole").wait(600) == 0
    plans = [(chance.uniform(0, time.monotonic() - began), chance.random()) for _ in range(KILLS)]

    def kill(number: int) -> None:
        after_s, which = plans[number]
        launcher = psutil.Process(begun(tmp_path / f"kill-{number}").pid)
        time.sleep(after_s)  # the moment is what is drawn
        with contextlib.suppress(psutil.Error):
            processes = [launcher, *launcher.children(recursive=True)]
            processes[int(which * len(processes))].kill()
            time.sleep(1)
            launcher.terminate()  # asks, if it was not the one
        with contextlib.suppress(psutil.Error):
            launcher.wait(DEADLINE_S)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(kill, range(KILLS)))
    wait_for(lambda: not marked_where(lambda process: process.environ().get("TMPDIR") == str(temporary)))

"""The tour: its plan, what a failure and Ctrl-C cost, its exit status, the whole of it; and a run that is watched."""

import io
import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from processes import wait_for

from labkit.cli import main
from labkit.cli.console import Console
from labkit.cli.sweep import TourDisplay, exit_status
from labkit.errors import UserError
from labkit.hardware import offered_budgets
from labkit.launch import Launches, plan_tour, run_tour, watch
from labkit.launch.launches import Head
from labkit.runs import list_runs, read_run, request_stop, run_folders
from labkit.tracking import Progress, ProgressLine, RunFailed, Started, StopRequest, WorkerFailed, events
from labkit.tracking.events import Point

SCRIPT = """
import argparse
import labkit
flags = argparse.ArgumentParser()
flags.add_argument("--seed", type=int)
flags.add_argument("--max-seconds", type=float)
args = flags.parse_args()
with labkit.Run("own", target="accuracy >= 0.5", seed=args.seed, max_seconds=args.max_seconds) as run:
    for _ in run.epochs(2):
        run.step(samples=1)
        run.evaluate(accuracy=0.6)
"""


def toured(tmp_path, tour, on_event):
    """What became of a tour, and what was printed."""
    console = Console(record=True, width=200, file=io.StringIO())
    with TourDisplay(console, tmp_path / "runs") as display:

        def show(part, event):
            display.show_part(part, event)
            on_event(part, event)

        done = run_tour(tour, tmp_path / "runs", show, StopRequest())
    return done, console.export_text()


@pytest.fixture
def tour(tmp_path):
    """Three seeds of a script under one budget."""
    script = tmp_path / "own.py"
    script.write_text(SCRIPT, encoding="utf-8")
    planned = plan_tour([str(script)], [1, 2, 3], tmp_path / "runs")
    return [each for each in planned if each.about["budget"] == "one-core"]


def test_a_run_that_fails_costs_no_other_run_and_late_in_a_tour_no_further_run_begins(tmp_path, tour, monkeypatch):
    def late(part, event):
        if part.status == "done":
            monkeypatch.setattr("labkit.launch.tour.LAST_START_S", 0.0)

    broken = replace(tour[0], job=replace(tour[0].job, arguments=("--no-such-flag",)))
    done, text = toured(tmp_path, [broken, *tour[1:]], late)
    assert [part.status for part in done.parts.values()] == ["failed", "done", "left_out"]
    assert done.record_of([*done.parts.values()][1]).seed == 2
    assert "seed 1: failed: the script ended with status 2 before its first step" in text
    assert "unrecognized arguments: --no-such-flag" in text
    assert re.search(r"target after \d+\.\d s", text)
    assert "one-core seed 3: left out, because the tour has taken too long: `labkit train" in text


def test_all_jobs_have_a_seed_before_any_has_the_next_and_budgets_take_turns():
    tour = plan_tour(["dlrm", "speech"], [0, 1])
    budgets = [budget.name for budget in offered_budgets()]
    asked = [(seed, job, budget) for seed in (0, 1) for job in ("dlrm", "speech") for budget in budgets]
    assert [(each.about["seed"], each.about["job"], each.about["budget"]) for each in tour] == asked


@pytest.mark.parametrize(
    ("ended", "status"),
    [
        ([("done", True, False), ("done", True, False)], 0),
        ([("done", True, False), ("done", False, False)], 1),
        ([("done", True, False), ("left_out", None, False)], 1),
        ([("failed", None, True), ("failed", None, False)], 1),
        ([("done", True, False), ("failed", None, True)], 2),
        ([("done", True, False), ("stopped", None, False), ("waiting", None, False)], 130),
    ],
)
def test_the_exit_status_separates_success_from_a_missed_target(ended, status, monkeypatch):
    tour = Launches(Path(), Head(kind="tour", id="t"), plan_tour(["dlrm"], range(9))[: len(ended)])
    for part, (state, reached, refused) in zip(tour.parts.values(), ended, strict=True):
        part.status, part.more = state, {"refused": refused, "reached": reached}
    record = lambda part: SimpleNamespace(result={"target_reached": part.more["reached"]})  # noqa: E731
    monkeypatch.setattr(tour, "record_of", record)
    assert exit_status(tour) == status


@pytest.mark.skipif(sys.platform == "win32", reason="signals a process group")
def test_ctrl_c_stops_the_tour_keeps_what_it_has_and_starts_no_further_run(tmp_path):
    """In the terminal's manner: SIGINT to the whole group."""
    process = subprocess.Popen(
        [sys.executable, "-m", "labkit", "tour", "--jobs", "dlrm"], cwd=tmp_path,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip
    next(line for line in process.stdout if "auc" in line)  # the first evaluation of the first run
    family = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, signal.SIGINT)
    rest, _ = process.communicate(timeout=120)
    assert process.returncode == 130, rest
    _, alive = psutil.wait_procs(family, timeout=60)
    assert not alive
    (folder,) = run_folders(tmp_path / "runs")
    assert read_run(folder).status == "stopped"
    assert "0 of 1" in rest
    assert (tmp_path / "report" / "index.html").is_file()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_tour_reaches_every_target_and_writes_the_page(tmp_path, monkeypatch, cli):
    """All of `labkit tour` but its last run, the recogniser on all cores, which takes a minute of both."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("labkit.launch.plan_tour", lambda *asked: plan_tour(*asked)[:-1])
    printed = cli("tour --seeds 0")
    runs = list_runs(tmp_path / "runs")
    assert len(runs) == 2 * len(offered_budgets()) - 1 and set(runs["job"]) == {"dlrm", "speech"}
    assert runs["target_reached"].all(), runs
    assert len(re.findall(r"1 of 1(?! runs)", printed.out)) == len(runs)
    page = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    assert "DLRM" in page and "Speech" in page
    assert "<input" in page


TRAIN = {"target": 0.72, "target_metric": "auc", "higher_is_better": True, "batch_size": 512, "seed": 3}
BUDGET = {"name": "one-core", "emulated": True}
STARTED = Started("r", "runs/r", {"job": "dlrm", "data": {"name": "synthetic-small"}, "budget": BUDGET, "train": TRAIN})
RESULT = {"wall_s": 2.0, "reason": "target reached", "target_reached": True, "time_to_target_s": 1.5}
ENDED = {"run": "r", "folder": "runs/r", "status": "done", "result": RESULT}

ENDLESS = """
import labkit
print("printed by the script")
with labkit.Run("t", target="score >= 0.9", max_seconds=500) as run:
    for step in run.batches(range(10**9)):
        run.step(0.5, samples=1)
        if step % 1000 == 0:
            run.evaluate(score=0.5)
"""


@pytest.fixture
def script(tmp_path):
    (tmp_path / "t.py").write_text(ENDLESS)
    return str(tmp_path / "t.py")


def progress(samples, *, evaluated=True):
    return Progress(Point(1, samples, samples / 1e5, 0.0), 1e5, 0.5, {"auc": 0.7}, evaluated)


def test_says_how_a_run_begins_and_ends_and_prints_an_evaluation_a_second(capsys, monkeypatch):
    clock = iter([10.0, 10.4, 11.1])
    monkeypatch.setattr(events.time, "monotonic", lambda: next(clock))
    line = ProgressLine(sys.stdout)
    for event in (STARTED, progress(1000), progress(1500, evaluated=False), progress(2000), progress(3000), ENDED):
        line(event)
    out = capsys.readouterr().out
    assert "dlrm on synthetic-small, one-core (emulated), batch_size 512, seed 3, target auc 0.72" in out
    assert "1,000 samples" in out and "3,000 samples" in out
    assert "1,500 samples" not in out and "2,000 samples" not in out
    assert "target first reached after 1.5 s" in out
    line = ProgressLine(sys.stdout, evaluations=False)
    short = {"target_reached": False, "time_to_target_s": None, "best_validation": 0.71}
    for event in (STARTED, progress(1000), ENDED | {"result": RESULT | short}):
        line(event)
    out = capsys.readouterr().out
    assert len(out.splitlines()) == 2 and "target not reached, best 0.7100" in out


@pytest.mark.parametrize(
    ("ends", "error", "words", "statuses"),
    [
        ("refused", UserError, "there is no such data", []),
        ("diverged", RunFailed, "diverged", ["failed"]),
        ("usage", WorkerFailed, "(?s)status 2 before its first step.*unrecognized arguments", []),
        ("killed", WorkerFailed, "its process was ended by SIGKILL", ["failed"]),
    ],
)
def test_how_a_run_fails_shows_in_the_error(light, script, tmp_path, monkeypatch, ends, error, words, statuses):
    monkeypatch.setattr(ProgressLine, "__call__", lambda line, event: None)
    with pytest.raises(error, match=words):
        watch(script, tmp_path / "runs", ends=ends)
    assert [read_run(folder).status for folder in run_folders(tmp_path / "runs")] == statuses


def test_an_interrupt_stops_the_run_before_it_ends_the_cell(script, tmp_path, monkeypatch):
    def interrupted(line, event):
        if isinstance(event, Started):  # once: a second Ctrl-C is for a run that hangs
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(ProgressLine, "__call__", interrupted)
    before = psutil.Process().children(recursive=True)
    with pytest.raises(KeyboardInterrupt):
        watch(script, tmp_path / "runs")
    (folder,) = run_folders(tmp_path / "runs")
    assert read_run(folder).status == "stopped"
    assert {*psutil.Process().children(recursive=True)} <= {*before}


def test_a_run_is_stopped_from_another_process_and_shows_nothing_that_the_script_prints(script, tmp_path, capfd):
    with ThreadPoolExecutor(1) as pool:
        watched = pool.submit(watch, script, tmp_path / "runs")
        wait_for(lambda: any(run_folders(tmp_path / "runs")))
        (folder,) = run_folders(tmp_path / "runs")
        assert main(["runs", "stop", folder.name, "--runs-dir", str(folder.parent)]) == 0
        answer = watched.result()
    assert (answer["status"], answer["result"]["reason"]) == ("stopped", "stopped on request")
    assert list((tmp_path / "runs").iterdir()) == [folder], "the list that started it is gone"
    shown = capfd.readouterr()
    assert "stopped on request" in shown.out and "printed by" not in shown.out + shown.err
    with pytest.raises(UserError, match="not running"):
        request_stop(folder)

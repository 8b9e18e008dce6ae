"""`watch` prints how a run goes, keeps its folder alone, raises its errors, and an interrupt ends the run first."""

import signal
import sys
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
from processes import wait_for

from labkit.cli import main
from labkit.errors import UserError
from labkit.launch import watch
from labkit.runs import read_run, request_stop, run_folders
from labkit.tracking import Progress, ProgressLine, RunFailed, Started, WorkerFailed, events
from labkit.tracking.events import Point

TRAIN = {"target": 0.72, "target_metric": "auc", "higher_is_better": True, "batch_size": 512, "seed": 3}
BUDGET = {"name": "one-core", "emulated": True}
STARTED = Started("r", "runs/r", {"job": "dlrm", "data": {"name": "synthetic-small"}, "budget": BUDGET, "train": TRAIN})
RESULT = {"wall_s": 2.0, "reason": "target reached", "target_reached": True, "time_to_target_s": 1.5}
ENDED = {"run": "r", "folder": "runs/r", "status": "done", "result": RESULT}

SCRIPT = """
import argparse, os, labkit
flags = argparse.ArgumentParser()
flags.add_argument("--steps", type=int, default=3)
flags.add_argument("--loss", type=float, default=0.5)
flags.add_argument("--fails", default="")
args = flags.parse_args()
print("printed by the script")
with labkit.Run("t", target="score >= 0.9", max_seconds=500) as run:
    for step in run.batches(range(args.steps)):
        run.step(args.loss, samples=1)
        if step % 1000 == 0:
            run.evaluate(score=0.5)
    if args.fails == "killed":
        os.kill(os.getpid(), 9)
if args.fails:
    raise ValueError(args.fails)
"""
ENDLESS = {"steps": 1_000_000_000}


@pytest.fixture
def script(tmp_path):
    (tmp_path / "t.py").write_text(SCRIPT)
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


def test_a_run_leaves_its_folder_alone_and_shows_nothing_that_the_script_prints(script, tmp_path, capfd):
    answer = watch(script, tmp_path / "runs", evaluations=False)
    assert (answer["status"], answer["result"]["steps"]) == ("done", 3)
    assert [str(each) for each in (tmp_path / "runs").iterdir()] == [answer["folder"]]
    shown = capfd.readouterr()
    assert "target not reached" in shown.out and "printed by" not in shown.out + shown.err


@pytest.mark.parametrize(
    ("settings", "error", "words", "statuses"),
    [
        ({"runs_dir": "/dev/null/runs"}, UserError, "/dev/null", []),
        ({"loss": "nan"}, RunFailed, "the training loss is nan", ["failed"]),
        ({"fails": "oops"}, WorkerFailed, "(?s)ValueError: oops.*printed by the script", ["done"]),
        ({"fails": "killed"}, WorkerFailed, "its process was ended by SIGKILL", ["failed"]),
    ],
)
def test_how_a_run_fails_shows_in_the_error(script, tmp_path, settings, error, words, statuses):
    with pytest.raises(error, match=words):
        watch(script, **{"runs_dir": tmp_path / "runs"} | settings)
    assert [read_run(folder).status for folder in run_folders(tmp_path / "runs")] == statuses


def test_an_interrupt_stops_the_run_before_it_ends_the_cell(script, tmp_path, monkeypatch):
    def interrupted(line, event):
        if isinstance(event, Started):  # once: a second Ctrl-C is for a run that hangs
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(ProgressLine, "__call__", interrupted)
    with pytest.raises(KeyboardInterrupt):
        watch(script, tmp_path / "runs", **ENDLESS)
    (folder,) = run_folders(tmp_path / "runs")
    assert read_run(folder).status == "stopped"
    assert not psutil.Process().children(recursive=True)


def test_a_run_is_stopped_from_another_process(script, tmp_path):
    with ThreadPoolExecutor(1) as pool:
        watched = pool.submit(watch, script, tmp_path / "runs", **ENDLESS)
        wait_for(lambda: any(run_folders(tmp_path / "runs")))
        (folder,) = run_folders(tmp_path / "runs")
        assert main(["runs", "stop", folder.name, "--runs-dir", str(folder.parent)]) == 0
        answer = watched.result()
    assert (answer["status"], answer["result"]["reason"]) == ("stopped", "stopped on request")
    with pytest.raises(UserError, match="not running"):
        request_stop(folder)

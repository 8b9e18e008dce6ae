"""`labkit train`, as a terminal, a pipe and a kill see it."""

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from processes import wait_for

from labkit.runs import list_runs, read_events, read_metrics, read_run

SMALL = ["--data", "synthetic-small", "--precision", "fp32"]


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    """Where others compute, too, two threads wait for each other longer than they add numbers."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def start(*arguments: str, **options) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-m", "labkit", "train", "dlrm", *arguments], text=True, **options)


def told_at(folder: Path, kind: str) -> list[int]:
    """The steps of a run's events of this kind."""
    return [event["step"] for event in read_events(folder) if event["event"] == kind]


def steps_of_losses(folder: Path):
    return read_metrics([folder]).query("name == 'loss'")["step"]


def test_ctrl_c_stops_cleanly_and_is_recorded(tmp_path):
    limits = ["--max-epochs", "100000", "--target", "none", "--runs-dir", str(tmp_path), "--json"]
    process = start(*SMALL, *limits, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_for(lambda: list(tmp_path.glob("*/run.json")))
    (folder,) = tmp_path.iterdir()
    wait_for(lambda: told_at(folder, "evaluated"))
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert json.loads(output.splitlines()[-1])["status"] == read_run(folder).status == "stopped"
    assert read_events(folder)[-1]["reason"] == "stopped by SIGINT"
    assert (folder / "checkpoint" / "latest.pt").is_file()


def test_a_reader_that_leaves_does_not_end_the_run(tmp_path):
    """`labkit train dlrm | head -1`: the pipe breaks, the run is trained to its end."""
    limits = ["--max-epochs", "2", "--runs-dir", str(tmp_path)]
    process = start(*SMALL, *limits, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.readline()
    process.stdout.close()
    errors = process.stderr.read()
    assert (process.wait(), errors) == (0, "")
    (run,) = list_runs(tmp_path)["folder"]
    assert read_run(run).status == "done"


def test_a_diverged_run_prints_its_json_too(tmp_path, cli):
    told = cli("train dlrm", *SMALL, "--lr", "1e30", "--runs-dir", tmp_path, "--json", status=2).json
    assert (told["status"], told["result"]["metrics"]) == ("failed", {})


def test_a_run_goes_on_for_more_epochs(tmp_path, cli):
    runs = ("--json", "--runs-dir", tmp_path)
    first = cli("train dlrm --batch-size 4096 --max-epochs 2", *SMALL, *runs).json
    for job, flag, words in (
        ("dlrm", [], "this run is done (max_epochs 2 trained): give a larger --max-epochs"),
        ("dlrm", ["--seed", "1"], "seed was 0 and is 1"),
        ("dlrm", ["--optimiser", "sgd", "--lr", "1"], "optimiser was 'adam' and is 'sgd'"),
        ("dlrm", ["--budget", "one-core"], "--budget cannot be given"),
        ("speech", [], "this run trains dlrm"),
    ):
        assert words in cli("train", job, "--resume", first["run"], *flag, *runs, status=2).err
    (Path(first["folder"]) / "stop-requested").touch()  # one that came too late does not stop the resumed run
    second = cli("train dlrm --max-epochs 3 --resume", first["run"][:-2], *runs).json
    assert (second["status"], second["run"]) == ("done", first["run"])
    assert second["result"]["samples"] == 1.5 * first["result"]["samples"]
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("command", ["train dlrm", "profile speech"])
def test_wrong_flags_are_refused_before_anything_waits_for_cores(command, monkeypatch, cli, capfd):
    monkeypatch.setattr("labkit.tracking.worker.bind_process", lambda *_: pytest.fail("it was bound"))
    assert cli(command, "--lr", "-1", status=2).err == "labkit: lr (--lr) is -1.0: give a number above 0.\n"
    with pytest.raises(SystemExit, match="2"):
        cli(command, "--lrx", "1")
    assert f"`labkit {command} --help`" in capfd.readouterr().err
    said = cli("train dlrm --help").out
    assert "--budget" in said and "--kernels" in said and "dlrm.py" in said
    assert said.count("--runs-dir DIR  ") == said.count("  -h") + 1 == said.count("--help, -h") == 1


@pytest.mark.slow
def test_kills_lose_nothing_that_was_finished_and_the_run_goes_on(tmp_path, monkeypatch):
    """One run, killed with SIGKILL at a random moment after a checkpoint, resumed, killed again, and left to finish."""
    monkeypatch.setenv("LABKIT_COMPILED", "0")
    arguments = [*SMALL, "--batch-size", "1024", "--max-epochs", "100000", "--target", "0.99999"]
    runs, saved = tmp_path / "runs", 0
    for pause_s in (0.0, random.uniform(0, 3)):
        process = start(*arguments, "--runs-dir", str(runs), stdout=subprocess.DEVNULL)
        wait_for(lambda: list(runs.glob("*/run.json")))
        (folder,) = runs.iterdir()
        wait_for(lambda f=folder, n=saved: len(told_at(f, "checkpoint")) > n)
        time.sleep(pause_s)  # the random moment itself: training, evaluation or checkpoint
        family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        process.kill()
        process.wait()
        assert not psutil.wait_procs(family, timeout=30)[1]
        assert read_run(folder).status == "interrupted" and steps_of_losses(folder).is_unique
        saved, arguments = len(told_at(folder, "checkpoint")), ["--resume", folder.name]
    last = start(*arguments, "--target", "0.5", "--runs-dir", str(runs), "--json", stdout=subprocess.PIPE)
    ended = json.loads(last.communicate()[0].splitlines()[-1])
    assert ended["status"] == "done" and ended["result"]["target_reached"] is True
    assert steps_of_losses(folder).is_unique and steps_of_losses(folder).is_monotonic_increasing

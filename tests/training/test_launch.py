"""Runs in processes of their own: what they tell, and that none of them stays."""

import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from labkit.cli import main
from labkit.errors import UserError
from labkit.runs import list_runs, read_events, read_metrics, read_run, request_stop
from labkit.training.background import BackgroundRun
from labkit.training.launch import LaunchedRun, WorkerFailed
from labkit.training.request import TrainRequest
from labkit.training.session import RunFailed

SMALL = TrainRequest("dlrm", data="synthetic-small", max_epochs=1)
ENDLESS = replace(SMALL, max_epochs=100_000)


def wait_for(what, deadline_s: float = 60.0):
    """Poll until `what()` is true and return it; a deadline, not a measurement."""
    end = time.monotonic() + deadline_s
    while not (found := what()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)
    return found


def test_a_launched_run_tells_what_happens_and_answers(tmp_path):
    with LaunchedRun(SMALL, tmp_path) as launched:
        kinds = [event["kind"] for event in launched.events()]
    assert {"Started", "Progress", "Ended"} <= set(kinds)
    assert kinds[-1] == "Ended"
    assert launched.answer["status"] == "done"


def test_a_refused_request_is_the_users_error(tmp_path):
    with (
        LaunchedRun(replace(SMALL, data="no-such-data"), tmp_path) as launched,
        pytest.raises(UserError, match="no-such"),
    ):
        list(launched.events())


def test_what_the_system_refuses_a_launched_run_is_the_users_error(tmp_path):
    (tmp_path / "file").write_text("")
    with LaunchedRun(SMALL, tmp_path / "file" / "runs") as launched, pytest.raises(UserError, match="file"):
        list(launched.events())


def test_leaving_the_block_stops_the_run_politely(tmp_path):
    with LaunchedRun(ENDLESS, tmp_path) as launched:
        folder = next(event["folder"] for event in launched.events() if event["kind"] == "Started")
    assert read_run(folder).status == "stopped"
    assert not psutil.Process().children(recursive=True) or all(
        "labkit" not in " ".join(child.cmdline()) for child in psutil.Process().children(recursive=True)
    )


def test_a_killed_launcher_leaves_nothing_running(tmp_path):
    code = (
        "import sys, os; from pathlib import Path\n"
        "from labkit.training.launch import LaunchedRun; from labkit.training.request import TrainRequest\n"
        "request = TrainRequest('dlrm', data='synthetic-small', max_epochs=100_000)\n"
        "run = LaunchedRun(request, Path(sys.argv[1])).__enter__()\n"
        "next(event for event in run.events() if event['kind'] == 'Progress')\n"
        "print(run._process.pid, flush=True)\n"
        "os.kill(os.getpid(), 9)"
    )
    launcher = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    worker = int(launcher.stdout)
    wait_for(lambda: not psutil.pid_exists(worker) or psutil.Process(worker).status() == psutil.STATUS_ZOMBIE)
    (status,) = list_runs(tmp_path)["status"]
    assert status == "stopped"


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "labkit", "train", "dlrm", *arguments]


def test_ctrl_c_stops_cleanly_and_is_recorded(tmp_path):
    process = subprocess.Popen(
        command("--data", "synthetic-small", "--max-epochs", "100000", "--runs-dir", str(tmp_path), "--json"),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    folder = wait_for(lambda: next(iter(tmp_path.glob("*/run.json")), None)).parent
    wait_for(lambda: any(event["event"] == "evaluated" for event in read_events(folder)))
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert json.loads(output.splitlines()[-1])["status"] == "stopped"
    assert read_run(folder).status == "stopped"
    assert read_events(folder)[-1]["reason"] == "stopped by SIGINT"
    assert (folder / "checkpoint" / "latest.pt").is_file()


def test_a_run_is_stopped_from_another_process(tmp_path):
    with LaunchedRun(ENDLESS, tmp_path) as launched:
        folder = next(event["folder"] for event in launched.events() if event["kind"] == "Started")
        assert main(["runs", "stop", Path(folder).name, "--runs-dir", str(tmp_path)]) == 0
        for _ in launched.events():
            pass
    assert launched.answer["status"] == "stopped"
    assert launched.answer["result"]["reason"] == "stopped on request"
    with pytest.raises(UserError, match="nothing to stop"):
        request_stop(folder)


def test_a_stop_that_came_too_late_does_not_stop_the_resumed_run(tmp_path):
    with LaunchedRun(SMALL, tmp_path) as launched:
        folder = Path(next(event["folder"] for event in launched.events() if event["kind"] == "Started"))
        list(launched.events())
    (folder / "stop-requested").touch()
    answer = subprocess.run(
        command("--resume", folder.name, "--max-epochs", "2", "--runs-dir", str(tmp_path), "--json"),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(answer.stdout.splitlines()[-1])["status"] == "done"


def test_a_background_run_leaves_the_notebook_free(tmp_path):
    run = BackgroundRun(ENDLESS, tmp_path)
    assert read_run(run.folder).status == "running"
    assert run.running
    run.stop()
    assert run.wait()["status"] == "stopped"
    assert not run.running
    refused = BackgroundRun(replace(SMALL, data="no-such-data"), tmp_path)
    with pytest.raises(UserError, match="no-such-data"):
        refused.wait()
    with pytest.raises(UserError, match="no-such-data"):
        refused.folder  # noqa: B018


def checkpoints(folder: Path) -> int:
    return sum(event["event"] == "checkpoint" for event in read_events(folder))


@pytest.mark.slow
def test_twenty_kills_lose_nothing_that_was_finished_and_the_run_goes_on(tmp_path, monkeypatch):
    """One run, killed with SIGKILL at a random moment twenty times, resumed each time, then left to finish."""
    moments = random.Random(0)
    # one kind of step: of two that are as fast, the unbroken run might choose the other
    same = ["--data", "synthetic-small", "--batch-size", "1024", "--precision", "fp32"]
    monkeypatch.setenv("LABKIT_COMPILED", "0")
    folder, last_step = None, 0
    for number in range(20):
        arguments = ["--resume", folder.name] if folder else same
        limits = ["--max-epochs", "100000", "--target", "0.99999"] if folder is None else []
        saved = checkpoints(folder) if folder else 0
        process = subprocess.Popen(
            command(*arguments, *limits, "--runs-dir", str(tmp_path)),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        if folder is None:
            folder = wait_for(lambda: next(iter(tmp_path.glob("*/run.json")), None)).parent
        else:
            wait_for(lambda f=folder, p=process: read_run(f).status == "running" or p.poll() is not None)
        if number % 2:  # on a slow machine, three seconds may not bring it as far as a checkpoint
            wait_for(lambda f=folder, n=saved: checkpoints(f) > n)
        time.sleep(moments.uniform(0, 3))  # the random moment itself: start-up, training, evaluation or checkpoint
        family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        _, alive = psutil.wait_procs(family, timeout=30)
        assert not alive
        assert read_run(folder).status == "interrupted"
        steps = read_metrics([folder]).query("name == 'loss'")["step"]
        step = max((event["step"] for event in read_events(folder) if event["event"] == "checkpoint"), default=0)
        assert step >= last_step
        assert not steps.duplicated().any()
        last_step = step
    assert last_step > 0
    answer = subprocess.run(
        command("--resume", folder.name, "--target", "0.5", "--runs-dir", str(tmp_path), "--json"),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    result = json.loads(answer.stdout.splitlines()[-1])
    assert result["status"] == "done"
    assert result["result"]["target_reached"] is True
    losses = read_metrics([folder]).query("name == 'loss'").set_index("step")["value"]
    assert losses.index.is_unique and losses.index.is_monotonic_increasing
    epochs = math.ceil(result["result"]["samples"] / read_run(folder).config["data"]["train_samples"])
    unbroken = subprocess.run(
        command(
            *same, "--target", "0.99999", "--json", "--max-epochs", str(epochs),
            "--runs-dir", str(tmp_path / "unbroken"),
        ),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    expected = read_metrics([json.loads(unbroken.stdout.splitlines()[-1])["folder"]])
    expected = expected.query("name == 'loss'").set_index("step")["value"]
    assert losses.to_dict() == expected.loc[: losses.index[-1]].to_dict()


def test_a_process_that_ends_at_once_says_why(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.executable", "/bin/false")
    with LaunchedRun(SMALL, tmp_path) as launched, pytest.raises(WorkerFailed, match="status 1"):
        list(launched.events())


def test_a_run_that_diverges_is_told_with_its_answer(tmp_path):
    with (
        LaunchedRun(replace(SMALL, lr=1e30, max_epochs=3), tmp_path) as launched,
        pytest.raises(RunFailed, match="learning rate") as failure,
    ):
        list(launched.events())
    assert read_run(failure.value.answer["folder"]).status == "failed"


def test_a_reader_that_leaves_does_not_end_the_run(tmp_path):
    """`labkit train dlrm | head -1`: the pipe breaks, the run is trained to its end."""
    process = subprocess.Popen(
        command("--data", "synthetic-small", "--max-epochs", "5", "--runs-dir", str(tmp_path)),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    process.stdout.readline()
    process.stdout.close()
    errors = process.stderr.read().decode()
    assert process.wait() == 0, errors
    assert errors == ""
    (run,) = list_runs(tmp_path)["folder"]
    assert read_run(run).status == "done"


def test_a_diverged_run_prints_its_json_too(tmp_path):
    answer = subprocess.run(
        command("--data", "synthetic-small", "--lr", "1e30", "--runs-dir", str(tmp_path), "--json"),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert answer.returncode == 2
    told = json.loads(answer.stdout.splitlines()[-1])
    assert (told["status"], told["result"]["metrics"]) == ("failed", {})
    assert "learning rate" in answer.stderr

"""`labkit train`, as a terminal, a pipe and a kill see it."""

from __future__ import annotations

import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from labkit.cli import main
from labkit.runs import list_runs, read_events, read_metrics, read_run

SMALL = ["--data", "synthetic-small", "--precision", "fp32"]


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    """Where others compute, too, two threads wait for each other longer than they add numbers."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def wait_for(what, deadline_s: float = 60.0):
    """Poll until `what()` is true and return it; a deadline, not a measurement."""
    end = time.monotonic() + deadline_s
    while not (found := what()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)
    return found


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "labkit", "train", "dlrm", *arguments]


def checkpoints(folder: Path) -> int:
    return sum(event["event"] == "checkpoint" for event in read_events(folder))


def test_ctrl_c_stops_cleanly_and_is_recorded(tmp_path):
    process = subprocess.Popen(
        command(*SMALL, "--max-epochs", "100000", "--target", "none", "--runs-dir", str(tmp_path), "--json"),
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


def test_a_reader_that_leaves_does_not_end_the_run(tmp_path):
    """`labkit train dlrm | head -1`: the pipe breaks, the run is trained to its end."""
    process = subprocess.Popen(
        command(*SMALL, "--max-epochs", "2", "--runs-dir", str(tmp_path)),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    process.stdout.readline()
    process.stdout.close()
    errors = process.stderr.read().decode()
    assert process.wait() == 0, errors
    assert errors == ""
    (run,) = list_runs(tmp_path)["folder"]
    assert read_run(run).status == "done"


def test_a_diverged_run_prints_its_json_too(tmp_path, capfd):
    assert main(["train", "dlrm", *SMALL, "--lr", "1e30", "--runs-dir", str(tmp_path), "--json"]) == 2
    told = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert (told["status"], told["result"]["metrics"]) == ("failed", {})


def test_a_run_goes_on_for_more_epochs(tmp_path, capfd):
    flags = ["--runs-dir", str(tmp_path), "--json"]

    def train(*arguments):
        status = main(["train", *arguments, *flags])
        said = capfd.readouterr()
        return status, json.loads(said.out.splitlines()[-1]) if status == 0 else said.err

    _, first = train("dlrm", *SMALL, "--batch-size", "4096", "--max-epochs", "2")
    for flag, words in (
        ([], "this run is done (max_epochs 2 trained): give it something to go on for, such as a larger --max-epochs"),
        (["--seed", "1"], "seed was 0 and is 1"),
        (["--optimiser", "sgd", "--lr", "1"], "optimiser was 'adam' and is 'sgd'"),
        (["--max-epochs", "1"], "this run is done (max_epochs 2 trained)"),
        (["--budget", "one-core"], "--budget cannot be given"),
    ):
        status, said = train("dlrm", "--resume", first["run"], *flag)
        assert status == 2 and words in said
    status, said = train("speech", "--resume", first["run"])
    assert status == 2 and "this run trains dlrm" in said
    (Path(first["folder"]) / "stop-requested").touch()  # one that came too late does not stop the resumed run
    status, second = train("dlrm", "--resume", first["run"][:-2], "--max-epochs", "3")
    assert (status, second["status"], second["run"]) == (0, "done", first["run"])
    assert second["result"]["samples"] == 1.5 * first["result"]["samples"]
    assert len(list(tmp_path.iterdir())) == 1


def test_help_has_the_flags_of_harness_and_script(capsys):
    assert main(["train", "dlrm", "--help"]) == 0
    said = capsys.readouterr().out
    assert "--budget" in said and "--kernels" in said and "dlrm.py" in said


@pytest.mark.slow
def test_kills_lose_nothing_that_was_finished_and_the_run_goes_on(tmp_path, monkeypatch):
    """One run, killed with SIGKILL at a random moment six times, resumed each time, then left to finish."""
    moments = random.Random(0)
    same = [*SMALL, "--batch-size", "1024"]
    monkeypatch.setenv("LABKIT_COMPILED", "0")
    folder, last_step = None, 0
    for number in range(6):
        arguments = ["--resume", folder.name] if folder else same
        limits = ["--max-epochs", "100000", "--target", "0.99999"] if folder is None else []
        saved = checkpoints(folder) if folder else 0
        process = subprocess.Popen(
            command(*arguments, *limits, "--runs-dir", str(tmp_path)),
            stdout=subprocess.DEVNULL, stderr=(tmp_path / "said").open("w"), start_new_session=True,
        )  # fmt: skip
        if folder is None:
            folder = wait_for(lambda: next(iter(tmp_path.glob("*/run.json")), None)).parent
        else:
            wait_for(lambda f=folder, p=process: read_run(f).status == "running" or p.poll() is not None)
        if number % 2:  # on a slow machine, three seconds may not bring it as far as a checkpoint
            wait_for(lambda f=folder, n=saved: checkpoints(f) > n)
        time.sleep(moments.uniform(0, 3))  # the random moment itself: start-up, training, evaluation or checkpoint
        assert process.poll() is None, (tmp_path / "said").read_text()
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

"""Processes of runs: how they are bound, and what they report."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from labkit import telemetry
from labkit.cli import main
from labkit.errors import UserError
from labkit.hardware import Budget
from labkit.json_data import build, to_json
from labkit.runs import request_stop
from labkit.tracking.ending import RunFailed, StopRequest
from labkit.tracking.harness import ScriptCommand
from labkit.tracking.worker import WAIT_POLICY, LaunchedRun, WorkerFailed, bind_process

SCRIPT = """
import sys, labkit
print("printed by the script")
with labkit.Run("t", target="score >= 0.9") as run:
    for step in run.batches(range(int(sys.argv[1]))):
        run.step(float(sys.argv[2]), samples=1)
        if step % 1000 == 0:
            run.evaluate(score=0.5)
if sys.argv[3:]:
    raise ValueError(sys.argv[3])
"""


@pytest.fixture
def command(tmp_path):
    """The command of a small script: steps, the loss of each, and what it raises at its end."""
    (tmp_path / "t.py").write_text(SCRIPT)
    return lambda *arguments, **more: ScriptCommand(
        str(tmp_path / "t.py"), arguments, **{"runs_dir": str(tmp_path / "runs"), **more}
    )


def test_a_launched_run_tells_what_happens_and_answers(command):
    with LaunchedRun(command("3", "0.5", waits=True)) as launched:
        events = []
        for event in launched.events():
            events.append(event["kind"])
            if event["kind"] == "Ready":  # nothing is trained until it may
                launched.send({"kind": "go"})
        assert launched.stderr_tail() == "printed by the script\n"
    assert [kind for kind in events if kind != "Notice"] == ["Started", "Ready", "Progress", "Progress", "Ended"]
    assert (launched.answer["status"], launched.answer["result"]["steps"]) == ("done", 3)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"runs_dir": "/dev/null/runs"}, UserError, "/dev/null"),
        ({"arguments": ("3", "nan")}, RunFailed, "the training loss is nan"),
        ({"arguments": ("3", "0.5", "oops")}, WorkerFailed, "(?s)ValueError: oops.*printed by the script"),
    ],
)
def test_how_a_run_fails_is_told_apart(command, change, error, words):
    values = to_json(command("3", "0.5")) | change
    with pytest.raises(error, match=words), LaunchedRun(build(values, ScriptCommand)) as launched:
        list(launched.events())


def test_a_run_is_stopped_from_another_process(command):
    with LaunchedRun(command("1000000000", "0.5")) as launched:
        folder = Path(next(event["folder"] for event in launched.events() if event["kind"] == "Started"))
        assert main(["runs", "stop", folder.name, "--runs-dir", str(folder.parent)]) == 0
        list(launched.events())
    assert launched.answer["status"] == "stopped"
    assert launched.answer["result"]["reason"] == "stopped on request"
    with pytest.raises(UserError, match="not running"):
        request_stop(folder)


QUIET = {"cpu_share": 0.02, "largest": None, "on_gpu": [], "disturbed": False}
BUSY = {"cpu_share": 0.5, "largest": "stress (process 7)", "on_gpu": [], "disturbed": True}
WHOLE = Budget("all-cores", 2)


@pytest.mark.parametrize(
    ("budget", "found", "more", "policy", "waits"),
    [
        (WHOLE, QUIET, {}, None, None),
        (None, BUSY, {}, None, "PASSIVE"),
        (WHOLE, BUSY, {}, None, "PASSIVE"),
        (WHOLE, BUSY, {}, "ACTIVE", "ACTIVE"),
        (Budget("one-core", 1), BUSY, {}, None, None),  # one thread waits for nobody
        # who runs jobs side by side chooses for them
        (None, BUSY, {"collocation": {"mode": "cpu-shared"}}, None, None),
    ],
)
def test_beside_other_programs_threads_wait_passively_which_is_told(monkeypatch, budget, found, more, policy, waits):
    told = []
    variables = {name: value for name, value in os.environ.items() if name != WAIT_POLICY}
    monkeypatch.setattr(os, "environ", variables | ({WAIT_POLICY: policy} if policy else {}))
    monkeypatch.setattr(Budget, "take_cores", lambda self, **how: [])
    monkeypatch.setattr(telemetry, "others_now", lambda **what: found)
    bind_process(ScriptCommand("t.py", budget=budget, **more), lambda event: told.append(event.text), StopRequest())
    assert os.environ.get(WAIT_POLICY) == waits
    assert len(told) == (found is BUSY and not more)
    assert all("other programs took 50% of its cores, most of it stress (process 7)" in text for text in told)
    assert all(("its threads wait passively" in text) == (waits == "PASSIVE") for text in told)


def test_no_library_that_counts_its_threads_once_is_loaded_before_a_process_is_bound():
    code = (
        "import argparse, sys, labkit.cli.run, labkit.tracking.worker, labkit.tracking.worker\n"
        "flags = argparse.Namespace(budget='one-core', sample_hz=1, runs_dir='', no_wait=True)\n"
        "labkit.cli.run.harness_command(flags, labkit.tracking.harness.ScriptCommand('train.py'))\n"
        "print(*{'numpy', 'torch'} & {*sys.modules})"
    )
    assert subprocess.check_output([sys.executable, "-c", code]) == b"\n"

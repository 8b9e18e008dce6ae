"""Runs in processes of their own: what they tell."""

from pathlib import Path

import pytest

from labkit.cli import main
from labkit.errors import UserError
from labkit.json_data import build, to_json
from labkit.runs import request_stop
from labkit.tracking.ending import RunFailed
from labkit.tracking.harness import ScriptCommand
from labkit.tracking.worker import LaunchedRun, WorkerFailed

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

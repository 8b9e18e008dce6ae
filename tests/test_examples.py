"""Each example is one file that reaches its target, under a budget, and goes on after a stop."""

import json

import pytest
from test_readme import REPOSITORY

from labkit.cli import main
from labkit.hardware import one_thread
from labkit.runs import read_run

EXAMPLES = sorted((REPOSITORY / "examples").glob("*.py"))


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda script: script.stem)
def test_an_example_reaches_its_target(script, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    with one_thread():
        assert main(["run", "--json", str(script), "--seed", "1"]) == 0
    answer = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert answer["result"]["target_reached"] is True
    record = read_run(answer["folder"])
    assert (record.seed, record.result["ended_by"]) == (1, "target")
    assert record.config["train"]["lr"] > 0

"""Each example is one short file that does what its first line says."""

import json
import subprocess
import sys

import pytest
from made_card import made_card
from test_readme import REPOSITORY

from labkit.runs import read_run, run_folders

EXAMPLES = REPOSITORY / "examples"
SMALL_SWEEP = "script: {script}\ngrid: {{lr: [5e-3, 1e-2]}}\nseeds: [1]\n"


@pytest.fixture
def example(tmp_path, monkeypatch):
    """Run an example in a folder of its own, on one thread per process; what it printed."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")

    def run(name: str, *arguments: str) -> str:
        command = [sys.executable, str(EXAMPLES / name), *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_an_example_has_at_most_40_lines():
    lengths = {path.name: len(path.read_text(encoding="utf-8").splitlines()) for path in EXAMPLES.glob("*.py")}
    assert len(lengths) == 6 and max(lengths.values()) <= 40


def test_digits_cnn_reaches_its_target(example, tmp_path):
    example("digits_cnn.py", "--seed", "1")
    (record,) = [read_run(folder) for folder in run_folders(tmp_path / "runs")]
    assert (record.seed, record.result["ended_by"]) == (1, "target")
    assert record.config["train"]["lr"] > 0


def test_own_table_reaches_its_target(example, tmp_path):
    assert "train 6,480, validation 720, test 800" in example("own_table.py")
    (record,) = [read_run(folder) for folder in run_folders(tmp_path / "runs")]
    assert record.result["ended_by"] == "target"


def test_two_jobs_share_the_cores_and_say_what_it_cost(example):
    printed = example("two_jobs.py")
    assert "cpu-shared: 2 jobs at once" in printed and "times as long as alone" in printed


def test_predict_step_compares_the_prediction_with_a_run(example, tmp_path):
    made_card().save(tmp_path / "card.json")
    printed = example("predict_step.py", "card.json")
    assert "predicted for made up" in printed and "times the prediction" in printed


def test_learning_rates_makes_a_row_per_rate(example, tmp_path):
    sweep = tmp_path / "small.yaml"
    sweep.write_text(SMALL_SWEEP.format(script=json.dumps(str(EXAMPLES / "digits_cnn.py"))), encoding="utf-8")
    rows = example("learning_rates.py", str(sweep)).splitlines()[-2:]
    assert sorted(row.split()[0] for row in rows) == ["0.005", "0.010"]


def test_the_sweep_of_learning_rates_is_in_order():
    command = [sys.executable, "-m", "labkit", "sweep", "--dry-run", str(EXAMPLES / "learning_rates.yaml")]
    assert "9 cells" in subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_budgets_makes_a_row_per_budget(example):
    row = example("budgets.py", "one-core").splitlines()[-1].split()
    assert row[:4] == ["one-core", "emulated", "1", "1"]

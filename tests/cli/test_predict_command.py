"""`labkit calibrate` and `labkit predict`, from the first argument to what is printed."""

import json
from pathlib import Path

import pytest
import torch
from made_card import made_card

from labkit.cli import main

SCRIPT = """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range({steps}):
    loss = model(torch.randn({size}, 32)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.fixture
def card(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made_card(software={"torch": torch.__version__, "labkit": "0"}).save(Path("card.json"))


def script(size: str = "16", steps: int = 50) -> str:
    Path("mine.py").write_text(SCRIPT.format(size=size, steps=steps))
    return "mine.py"


def test_a_script_of_the_readers_is_predicted(card, capfd):
    assert main(["predict", "run", script()]) == 0
    text = " ".join(capfd.readouterr().out.split())
    assert "A step takes" in text
    assert "predicted, for made up with 2 threads" in text
    assert "operators that the card has no model of" in text, "the card knows products alone"
    assert not Path("runs").exists(), "a prediction leaves no run"


def test_a_prediction_as_json(card, capfd):
    assert main(["predict", "run", "--json", script()]) == 0
    told = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert told["provenance"] == "predicted"
    assert told["low_ms"] < told["step_ms"] < told["high_ms"]
    assert 0 < told["without_model"] < 1
    assert {"kind", "calls", "time_ms"} <= told["operators"][0].keys()
    assert [note for note in told["notes"] if "no model of" not in note and "than any on the card" not in note] == []


def test_steps_of_different_sizes_and_a_poor_card_of_another_torch_are_pointed_out(card, capfd):
    poor = {job: [-0.5, 0.0, 0.5] * 20 for job in ("dlrm", "speech")}
    made_card(software={"torch": "2.0.0", "labkit": "0"}, misses=poor, shared=poor).save(Path("card.json"))
    assert main(["predict", "run", script(size="16 + step")]) == 0
    text = " ".join(capfd.readouterr().out.split())
    for words in ("steps depend on its data", "The card is of torch 2.0.0", "The card is poor"):
        assert words in text
    assert main(["predict", "run", script(steps=2)]) == 2, "it ends too soon"
    assert "mine.py" in capfd.readouterr().err


def test_a_job_of_the_kit_is_predicted_with_its_batch_size(card, capfd):
    assert main(["predict", "dlrm", "--data", "synthetic-small", "--batch-size", "128", "--json"]) == 0
    told = json.loads(capfd.readouterr().out.splitlines()[-1])
    assert told["samples_per_s"] == pytest.approx(128e3 / told["step_ms"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["predict", "dlrm", "--card", "none.json"], "labkit calibrate --out none.json"),
        (["predict", "dlrm", "--batch-size", "0"], "batch-size"),
        (["calibrate", "--seconds", "1"], "--seconds is 1: give 20"),
        (["calibrate", "--out", "nowhere/card.json"], "there is no folder nowhere"),
    ],
)
def test_bad_input_is_refused_before_anything_runs(card, capfd, arguments, words):
    assert main(arguments) == 2
    assert words in " ".join(capfd.readouterr().err.split())

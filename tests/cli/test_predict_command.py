"""`labkit calibrate`, `labkit predict` and `labkit whatif`, from the first argument to what is printed."""

from pathlib import Path

import pytest
import torch
from made_card import made_card

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


def test_a_script_of_the_readers_is_predicted(card, cli):
    text = cli("predict run", script()).text
    for words in ("A step takes", "predicted, for made up with 2 threads", "operators that the card has no model of"):
        assert words in text
    assert not Path("runs").exists(), "a prediction leaves no run"


def test_a_prediction_as_json_has_its_interval_operators_memory_longest_chain_and_tier(card, cli):
    told = cli("predict run --json --tier cloud-cpu-1", script()).json
    assert (told["provenance"], told["tier"]) == ("predicted", "cloud-cpu-1")
    assert told["low_ms"] < told["step_ms"] < told["high_ms"]
    assert 0 < told["without_model"] < 1
    assert {"kind", "calls", "time_ms"} <= told["operators"][0].keys()
    assert told["memory_bytes"] > 1e7 and 0 < told["critical_ms"] <= told["step_ms"]
    *others, last = told["notes"]
    assert "It was not measured" in last
    assert all("no model of" in note or "than any on the card" in note for note in others)


def test_steps_of_different_sizes_and_a_poor_card_of_another_torch_are_pointed_out(card, cli):
    poor = {job: [-0.5, 0.0, 0.5] * 20 for job in ("dlrm", "speech")}
    made_card(software={"torch": "2.0.0", "labkit": "0"}, misses=poor, shared=poor).save(Path("card.json"))
    text = cli("predict run", script(size="16 + step")).text
    for words in ("steps depend on its data", "The card is of torch 2.0.0", "The card is poor"):
        assert words in text
    assert "mine.py" in cli("predict run", script(steps=2), status=2).err, "it ends too soon"


def test_a_job_of_the_kit_is_predicted_with_its_batch_size(card, cli):
    told = cli("predict dlrm --data synthetic-small --batch-size 128 --json").json
    assert told["samples_per_s"] == pytest.approx(128e3 / told["step_ms"])


def test_a_faster_machine_gains_unmeasured_and_a_tiers_interval_is_twice_as_wide(card, cli):
    asked = ("arithmetic=2", "bandwidth=2", "overheads=0", "arithmetic=2,bandwidth=2,overheads=0", "tier=cloud-cpu-2")
    flags = [flag for change in asked for flag in ("--change", change)]
    rows = cli("whatif run --json", *flags, script()).json["changes"]
    own, *_, tier = rows
    gains = [row["gain"] for row in rows]
    assert gains[0] == 1.0 and min(gains[1:4]) >= 1.0 and gains[4] > max(gains[:4])
    assert {row["measured_ms"] for row in rows} == {None}
    interval = [own["low_ms"] / 2, own["step_ms"], 2 * own["high_ms"]]
    assert [tier["low_ms"], tier["step_ms"], tier["high_ms"]] == pytest.approx(interval)


def test_a_flag_is_predicted_from_its_own_step_and_then_measured(card, cli, monkeypatch):
    monkeypatch.setattr("labkit.perfmodel.whatif.ROUNDS", 1)
    data = "--data synthetic-small --budget all-cores --no-wait"
    own, more = cli(f"whatif dlrm {data} --json --measure --change batch-size=1024").json["changes"]
    assert (own["samples"], more["samples"]) == (512, 1024)
    assert own["measured_gain"] == 1.0
    assert more["measured_gain"] > 0

"""Each of five bottlenecks is named first on the script that has it alone, and a well-tuned script has none."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("planted.py")
BF16_PAYS = 1.25
"""Speed of products in bf16 over fp32 from which on a tenth of a step can be saved for sure."""


def findings_of(planted, tmp_path):
    """What the command finds; on one core, where threads need not wait for each other."""
    command = [sys.executable, "-m", "labkit", "profile", "run", "--budget", "one-core", "--json", "--skip", "3"]
    command += ["--steps", "6", "--runs-dir", str(tmp_path), str(SCRIPT), planted]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(answer.stdout.splitlines()[-1])
    # other programs may have taken the core, which is none of the script's bottlenecks
    found["findings"] = [finding for finding in found["findings"] if finding["name"] != "idle"]
    return found


@pytest.mark.parametrize("planted", ["input", "lookups", "sync", "batch size"])
def test_the_planted_bottleneck_is_named_first(planted, tmp_path):
    answer = findings_of(planted, tmp_path)
    assert [finding["name"] for finding in answer["findings"]][:1] == [planted]
    assert answer["findings"][0]["bound"] > 1.05


def test_fp32_is_named_first_where_bf16_pays(tmp_path):
    answer = findings_of("precision", tmp_path)
    card = answer["card"]
    if card["bf16_gflops"] < BF16_PAYS * card["fp32_gflops"]:
        assert "precision" not in [finding["name"] for finding in answer["findings"]]
        pytest.skip(f"bf16 does not pay on {card['device']}, and the tool does not say that it does")
    assert answer["findings"][0]["name"] == "precision"


def test_a_well_tuned_script_has_nothing_worth_more_than_five_per_cent(tmp_path):
    assert findings_of("none", tmp_path)["findings"] == []

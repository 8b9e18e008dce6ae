"""The campaign itself: it finds what it is there to find."""

from __future__ import annotations

import json
import time
from pathlib import Path

import campaign
import pytest

from labkit.errors import UserError


def read_numbers(folder: Path) -> list:
    try:
        return json.loads((folder / "numbers.json").read_bytes())
    except (ValueError, OSError) as error:
        raise UserError("no JSON") from error


def read_carelessly(folder: Path) -> float:
    return sum(json.loads((folder / "numbers.json").read_bytes()))


def hang(folder: Path) -> None:
    time.sleep(60)


def test_outcomes_are_told_apart_and_repeat_and_bad_ones_fail_with_their_seed(reader, tmp_path, monkeypatch):
    numbers = tmp_path / "numbers"
    numbers.mkdir()
    (numbers / "numbers.json").write_text(json.dumps([1.5, 2, 3]))
    outcomes = campaign.campaign(reader, read_numbers, numbers, range(60))
    assert {outcome.kind for outcome in outcomes} == {"refused", "same", "other"}
    assert campaign.campaign(reader, read_numbers, numbers, range(60)) == outcomes
    with pytest.raises(AssertionError, match=r"seed \d+, numbers.json: .*: traceback"):
        campaign.campaign(reader, read_carelessly, numbers, range(60))
    monkeypatch.setattr(campaign, "LIMIT_S", 0.3)
    assert reader.read(hang, numbers) == ("hang", "not done after 0.3 s")

"""The campaign itself: it finds what it is there to find."""

from __future__ import annotations

import json
import time
from pathlib import Path

import campaign
import pytest


def read_carelessly(folder: Path) -> float:
    return sum(json.loads((folder / "numbers.json").read_bytes()))


def hang(folder: Path) -> None:
    time.sleep(60)


def test_tracebacks_fail_with_their_seed_and_a_reader_that_hangs_is_ended(reader, tmp_path, monkeypatch):
    numbers = tmp_path / "numbers"
    numbers.mkdir()
    (numbers / "numbers.json").write_text(json.dumps([1.5, 2, 3]))
    with pytest.raises(AssertionError, match=r"seed \d+, numbers.json: .*: traceback"):
        campaign.campaign(reader, read_carelessly, numbers, range(60))
    monkeypatch.setattr(campaign, "LIMIT_S", 0.3)
    assert reader.read(hang, numbers) == ("hang", "not done after 0.3 s")

"""The house has ceilings: lines a room may have. Raising one takes a commit that says what a user gains."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CEILINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["labkit"]["house"]


def lines(*paths: Path) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


@pytest.mark.parametrize("room", CEILINGS)
def test_a_room_stays_below_its_ceiling(room):
    folder = ROOT / room
    modules = folder.glob("*.py") if room == "labkit" else folder.rglob("*.py")
    assert lines(*modules) <= CEILINGS[room], f"{room} is over its ceiling in pyproject.toml: what can go?"


def test_every_room_has_a_ceiling():
    rooms = {f"labkit/{path.parent.name}" for path in (ROOT / "labkit").glob("*/__init__.py")}
    assert rooms | {"labkit", "labkit_course", "tests"} == set(CEILINGS)
    whole = sum(CEILINGS[room] for room in CEILINGS if room.startswith("labkit") and room != "labkit_course")
    assert whole <= 39_000

"""Ceilings of the rooms, and lines for tests/mutations.py. To raise a ceiling, commit it with what a user gains."""

import re
import tomllib
from pathlib import Path

import pytest
from mutations import REPOSITORY, load_mutations

ROOT = Path(__file__).parents[1]
CEILINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["labkit"]["house"]
CELLS = "labkit_course/labs cells"


def lines(*paths: Path) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)


def notebook_lines() -> int:
    """Lines of the labs' sources that reach a notebook: all but those of cells titled `checks`."""
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "labkit_course/labs").glob("*.py")]
    cells = [cell for text in texts for cell in re.split(r"^(?=# %% )", text, flags=re.MULTILINE)]
    return sum(len(cell.splitlines()) for cell in cells if not cell.startswith("# %% checks"))


@pytest.mark.parametrize("room", CEILINGS)
def test_a_room_stays_below_its_ceiling(room):
    folder = ROOT / room
    modules = folder.glob("*.py") if room == "labkit" else folder.rglob("*.py")
    count = notebook_lines() if room == CELLS else lines(*modules)
    if room == "labkit_course":
        count -= notebook_lines()
    assert count <= CEILINGS[room], f"{room} is over its ceiling in pyproject.toml: what can go?"


def test_every_room_has_a_ceiling():
    rooms = {f"labkit/{path.parent.name}" for path in (ROOT / "labkit").glob("*/__init__.py")}
    assert rooms | {"labkit", "labkit_course", CELLS, "tests"} == set(CEILINGS)
    whole = sum(CEILINGS[room] for room in CEILINGS if not room.startswith(("labkit_course", "tests")))
    assert whole <= 46_251


def test_each_line_stands_once_in_its_file():
    for each in load_mutations():
        assert (REPOSITORY / each["file"]).read_text(encoding="utf-8").count(each["line"]) == 1, each

"""Exercise notebooks are made from authored ones, and drift is noticed."""

import re
import shutil
from pathlib import Path

import pytest

from labkit.cli import main
from labkit.course.build import drift, write
from labkit.course.nbgrader_settings import STUB
from labkit.course.notebook_file import SOLUTIONS, authored, canonical, read_notebook
from labkit.errors import UserError

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


@pytest.fixture
def folder(tmp_path):
    shutil.copytree(NOTEBOOKS / SOLUTIONS, tmp_path / SOLUTIONS)
    write(tmp_path)
    return tmp_path


def test_the_committed_notebooks_are_in_order(capsys):
    assert main(["course", "build", "--check", "--notebooks", str(NOTEBOOKS)]) == 0
    assert "in order" in capsys.readouterr().out


def test_an_exercise_notebook_has_no_solution_and_its_checks_are_locked(folder):
    for path in authored(folder):
        made, source = read_notebook(folder / path.name), read_notebook(path)
        assert "SOLUTION" not in canonical(made)
        answers = [cell for cell in made.cells if cell.metadata.get("nbgrader", {}).get("solution")]
        checks = [cell for cell in made.cells if cell.metadata.get("nbgrader", {}).get("grade")]
        assert len(answers) == len(checks) >= 3
        assert {cell.source for cell in answers} == {STUB}
        assert all(cell.metadata.editable is False and cell.metadata.deletable is False for cell in checks)
        assert len(made.cells) == len(source.cells)


def test_an_exercise_notebook_has_dots_in_place_of_the_authors_guesses(folder):
    for path in authored(folder):
        sources = [cell.source for cell in read_notebook(folder / path.name).cells if cell.cell_type == "code"]
        guesses = [line for source in sources for line in source.splitlines() if line.startswith("guess(")]
        assert len(guesses) >= 3
        assert all(re.fullmatch(r'guess\("[\w.]+", \.\.\.(, "[^"]+")?\)', line) for line in guesses), guesses


def test_building_twice_changes_nothing(folder):
    assert write(folder) == []
    assert drift(folder) == []


@pytest.mark.parametrize(
    ("fault", "plant"),
    {
        "differs from what": lambda folder: edit(folder / "00_start_here.ipynb"),
        "is missing": lambda folder: (folder / "00_start_here.ipynb").unlink(),
        "has no authored notebook": lambda folder: (folder / "77_stray.ipynb").write_text("{}"),
        "has outputs": lambda folder: run_a_cell(folder / SOLUTIONS / "00_start_here.ipynb"),
    }.items(),
)
def test_drift_is_named(folder, capsys, fault, plant):
    plant(folder)
    assert any(fault in line for line in drift(folder))
    assert main(["course", "build", "--check", "--notebooks", str(folder)]) == 1
    assert fault in capsys.readouterr().out


def edit(path: Path) -> None:
    notebook = read_notebook(path)
    notebook.cells[2].source += " More."
    path.write_text(canonical(notebook))


def run_a_cell(path: Path) -> None:
    notebook = read_notebook(path)
    next(cell for cell in notebook.cells if cell.cell_type == "code").execution_count = 1
    path.write_text(canonical(notebook))


def test_an_edited_source_is_built_anew_and_made_canonical(folder, capsys):
    path = folder / SOLUTIONS / "00_start_here.ipynb"
    edit(path)
    path.write_text(path.read_text().replace('\n "cells"', '\n  "cells"'))
    assert main(["course", "build", "--notebooks", str(folder)]) == 0
    said = capsys.readouterr().out
    assert str(path) in said and str(folder / path.name) in said
    assert drift(folder) == []


def test_a_folder_without_notebooks_is_refused(tmp_path):
    with pytest.raises(UserError, match="name another folder"):
        write(tmp_path)

"""Exercise notebooks are made from authored ones, drift is noticed, and nbgrader makes and grades the same."""

import json
import os
import re
import shutil
import sysconfig
from pathlib import Path

import pytest
from nbgrader.api import Gradebook
from nbgrader.apps import NbGraderAPI
from sound_notebook import CODE, NAME, solved, sound_notebook
from traitlets.config import Config

from labkit.cli import main
from labkit_course.build import CODE_STUB, STUB, drift, exercise_version, write
from labkit_course.notebook_file import SOLUTIONS, authored, canonical, code_cells, read_notebook

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


def test_the_committed_notebooks_are_in_order(capsys):
    assert main(["course", "build", "--check", "--notebooks", str(NOTEBOOKS)]) == 0
    assert "in order" in capsys.readouterr().out


def test_exercise_notebooks_have_no_solution_and_no_guess_and_their_checks_are_locked():
    for source in authored(NOTEBOOKS):
        made = read_notebook(NOTEBOOKS / source.name)
        assert "SOLUTION" not in canonical(made)
        graded = [cell for cell in code_cells(made) if "nbgrader" in cell.metadata]
        answers = [cell for cell in graded if cell.metadata.nbgrader.solution]
        checks = [cell for cell in graded if cell.metadata.nbgrader.grade]
        assert len(checks) >= 4
        assert all(STUB in cell.source or CODE_STUB in cell.source for cell in answers)
        locked = [cell for cell in checks if cell.metadata.nbgrader.locked]
        assert all(cell.metadata.editable is False and cell.metadata.deletable is False for cell in locked)
        assert len(made.cells) == len(read_notebook(source).cells)
        guesses = [line for cell in code_cells(made) for line in cell.source.splitlines() if line.startswith("guess(")]
        assert len(guesses) >= 3
        assert all(re.fullmatch(r'guess\("[\w.]+", \.\.\.(, "[^"]+")?\)', line) for line in guesses), guesses


@pytest.fixture
def folder(tmp_path):
    """A course of one notebook, and what is made from it."""
    (tmp_path / SOLUTIONS).mkdir()
    (tmp_path / SOLUTIONS / f"{NAME}.ipynb").write_text(canonical(sound_notebook()), encoding="utf-8")
    write(tmp_path)
    return tmp_path


def run_a_cell(path: Path) -> None:
    notebook = read_notebook(path)
    code_cells(notebook)[0].execution_count = 1
    path.write_text(canonical(notebook), encoding="utf-8")


@pytest.mark.parametrize(
    ("fault", "plant"),
    {
        "differs from what": lambda folder: run_a_cell(folder / f"{NAME}.ipynb"),
        "is missing": lambda folder: (folder / f"{NAME}.ipynb").unlink(),
        "write its authored one": lambda folder: (folder / "77_stray.ipynb").write_text("{}"),
        "name it as 00_start_here": lambda folder: (folder / SOLUTIONS / "stray.ipynb").write_text("{}"),
        "has outputs": lambda folder: run_a_cell(folder / SOLUTIONS / f"{NAME}.ipynb"),
    }.items(),
)
def test_drift_is_named(folder, capsys, fault, plant):
    assert write(folder) == drift(folder) == []
    plant(folder)
    assert main(["course", "build", "--check", "--notebooks", str(folder)]) == 1
    assert fault in capsys.readouterr().out


def test_an_edited_source_is_built_anew_and_made_canonical(folder, capsys):
    path = folder / SOLUTIONS / f"{NAME}.ipynb"
    notebook = read_notebook(path)
    notebook.cells[2].source += " More."
    path.write_text(json.dumps(notebook), encoding="utf-8")
    assert main(["course", "build", "--notebooks", str(folder)]) == 0
    said = capsys.readouterr().out
    assert str(path) in said and str(folder / path.name) in said
    assert drift(folder) == []


@pytest.mark.parametrize(
    "work",
    [
        lambda cells: cells[0].update(source="notes = 1"),
        lambda cells: cells[2].update(source=cells[2].source.replace("...", "3")),
        lambda cells: cells[3].update(source=solved(CODE[0])),
    ],
)
def test_answers_are_never_overwritten(folder, capsys, work):
    path, source = folder / f"{NAME}.ipynb", folder / SOLUTIONS / f"{NAME}.ipynb"
    notebook = read_notebook(path)
    work(code_cells(notebook))
    answered = canonical(notebook)
    path.write_text(answered, encoding="utf-8")
    changed = read_notebook(source)
    changed.cells[2].source += " More."
    source.write_text(canonical(changed), encoding="utf-8")
    assert main(["course", "build", "--notebooks", str(folder)]) == 2
    assert "there are answers in it" in capsys.readouterr().err
    assert path.read_text(encoding="utf-8") == answered
    assert main(["course", "build", "--force", "--notebooks", str(folder)]) == 0
    (kept,) = folder.glob("*.bak")
    assert kept.read_text(encoding="utf-8") == answered and "More." in path.read_text(encoding="utf-8")


@pytest.mark.timeout(900)
def test_nbgraders_three_steps_score_a_submission(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_COURSE", str(tmp_path / "course"))
    # nbgrader starts `alembic`, which is beside it in an environment that need not be active
    monkeypatch.setenv("PATH", os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]]))
    authored_path = NOTEBOOKS / SOLUTIONS / "34_clinics.ipynb"  # which trains nothing
    source, submitted = (tmp_path / each / authored_path.name for each in ("source/lab", "submitted/ann/lab"))
    for path in (source, submitted):
        path.parent.mkdir(parents=True)
    shutil.copy(authored_path, source)
    config = Config()
    config.CourseDirectory.root = str(tmp_path)
    config.CourseDirectory.course_id = "labkit"
    config.CourseDirectory.db_url = f"sqlite:///{tmp_path / 'gradebook.db'}"
    configuration = NOTEBOOKS / SOLUTIONS / "nbgrader_config.py"
    exec(configuration.read_text(encoding="utf-8"), {"get_config": lambda: config})
    assert config.Execute.timeout >= 600  # a cell may train for minutes
    nbgrader = NbGraderAPI(config=config)
    made = nbgrader.generate_assignment("lab")
    assert made["success"], made["log"]
    notebook = read_notebook(tmp_path / "release" / "lab" / source.name)
    assert [cell.source for cell in notebook.cells] == [c.source for c in exercise_version(read_notebook(source)).cells]

    solutions = {cell.id: cell.source for cell in code_cells(read_notebook(source)) if "SOLUTION" in cell.source}
    graded = [cell for cell in code_cells(notebook) if cell.metadata.get("nbgrader", {}).get("grade")]
    checked = [cell.metadata.nbgrader.points for cell in graded if cell.source.startswith("check(")]
    wrong = next(name for name in solutions if name.startswith("answer-"))
    solutions[wrong] = re.sub("### BEGIN SOLUTION", "return 0", solutions[wrong])
    for cell in code_cells(notebook):
        cell.source = solutions.get(cell.id, cell.source)
    submitted.write_text(canonical(notebook), encoding="utf-8")
    for step in (nbgrader.autograde, nbgrader.generate_feedback):
        done = step("lab", "ann")
        assert done["success"], done["log"]
    with Gradebook(config.CourseDirectory.db_url) as gradebook:
        result = gradebook.find_submission("lab", "ann")
        assert result.score == sum(checked) - checked[0] and result.needs_manual_grade
    page = (tmp_path / "feedback" / "ann" / "lab" / f"{source.stem}.html").read_text(encoding="utf-8")
    assert "not yet" in page

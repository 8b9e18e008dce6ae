"""nbgrader's own three steps take an authored notebook as it is, and tell a right submission from a wrong one."""

import os
import shutil
import sysconfig
from pathlib import Path

import pytest
from nbgrader.api import Gradebook
from nbgrader.apps import NbGraderAPI
from traitlets.config import Config

from labkit.course.notebook_file import SOLUTIONS, canonical, read_notebook

NOTEBOOK = "01_know_your_machine"
SOURCE = Path(__file__).parents[2] / "notebooks" / SOLUTIONS / f"{NOTEBOOK}.ipynb"
CONFIGURATION = SOURCE.with_name("nbgrader_config.py")
WRONG = {"answer-01-intensity": "answer = 2 / 8", "answer-01-limit": 'answer = "magic"'}


def submit(released: Path, folder: Path, changed: dict[str, str]) -> None:
    """A student's copy of what was released, with the source's solutions but for what is changed."""
    solutions = {
        cell.metadata.nbgrader.grade_id: cell.source
        for cell in read_notebook(SOURCE).cells
        if "nbgrader" in cell.metadata
    }
    notebook = read_notebook(released)
    for cell in notebook.cells:
        graded = cell.metadata.get("nbgrader", {})
        if graded.get("solution"):
            cell.source = changed.get(graded.grade_id, solutions[graded.grade_id])
        if "parameters" in cell.metadata.get("tags", []):
            cell.source = cell.source.replace('"standard"', '"smoke"')
    folder.mkdir(parents=True)
    (folder / f"{NOTEBOOK}.ipynb").write_text(canonical(notebook), encoding="utf-8")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_three_steps_score_a_right_and_a_wrong_submission(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_COURSE", str(tmp_path / "guesses"))
    # nbgrader starts `alembic`, which is beside it in an environment that need not be active
    monkeypatch.setenv("PATH", os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]]))
    (tmp_path / "source" / "machine").mkdir(parents=True)
    shutil.copy(SOURCE, tmp_path / "source" / "machine")
    config = Config()
    config.CourseDirectory.root = str(tmp_path)
    config.CourseDirectory.course_id = "labkit"
    config.CourseDirectory.db_url = f"sqlite:///{tmp_path / 'gradebook.db'}"
    exec(CONFIGURATION.read_text(encoding="utf-8"), {"get_config": lambda: config})
    nbgrader = NbGraderAPI(config=config)

    made = nbgrader.generate_assignment("machine")
    assert made["success"], made["log"]
    released = tmp_path / "release" / "machine" / f"{NOTEBOOK}.ipynb"
    assert [cell.source for cell in read_notebook(released).cells] == [
        cell.source for cell in read_notebook(SOURCE.parents[1] / SOURCE.name).cells
    ]
    for student, changed in (("right", {}), ("wrong", WRONG)):
        submit(released, tmp_path / "submitted" / student / "machine", changed)
        graded = nbgrader.autograde("machine", student)
        assert graded["success"], graded["log"]
        feedback = nbgrader.generate_feedback("machine", student)
        assert feedback["success"], feedback["log"]
    with Gradebook(config.CourseDirectory.db_url) as gradebook:
        scores = {student: gradebook.find_submission("machine", student).score for student in ("right", "wrong")}
        assert gradebook.find_assignment("machine").max_score == 3
    assert scores == {"right": 3, "wrong": 1}
    page = (tmp_path / "feedback" / "wrong" / "machine" / f"{NOTEBOOK}.html").read_text(encoding="utf-8")
    assert "The result is written back, too" in page

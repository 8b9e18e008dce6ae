"""Exercise notebooks from authored ones, with nbgrader's own preprocessors; `configure` sets nbgrader up alike."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import time
from copy import deepcopy
from pathlib import Path

from nbformat import NotebookNode
from nbgrader.converters import GenerateAssignment
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import ClearOutput, ClearSolutions, LockCells, NbGraderPreprocessor
from traitlets.config import Config

from labkit.errors import UserError
from labkit.runs import replace_text
from labkit_course.checks import all_exercises
from labkit_course.gate import knocked_out
from labkit_course.lint import COLAB_CELL, GUESS, faults
from labkit_course.notebook_file import SOLUTIONS, authored, canonical, read_notebook, without_outputs
from labkit_course.runner import PROFILES

STUB = "answer = ...  # YOUR ANSWER HERE, in place of the dots"
"""What stands where the solution was; the check below it says by name that it is not answered yet."""
CODE_STUB = "raise NotImplementedError  # YOUR CODE HERE"
"""What stands where the body of a function was"""


class ForStudents(NbGraderPreprocessor):
    """Leaves to students what is theirs: no author's guesses or explanations, a stub in code, odd cells folded."""

    def preprocess_cell(self, cell: NotebookNode, resources: dict, index: int) -> tuple[NotebookNode, dict]:
        if cell.cell_type == "code":
            if cell.source == COLAB_CELL or "results" in cell.metadata.get("tags", []):
                cell.metadata["jupyter"] = {"source_hidden": True}  # of which a student has no use
            source = GUESS.sub(r"\1...\2", cell.source).replace(", model_answer", "")
            cell.source = re.sub(rf"^( +){re.escape(STUB)}$", rf"\1{CODE_STUB}", source, flags=re.MULTILINE)
        return cell, resources


def configure(config: Config) -> None:
    """Set nbgrader up for this course: our stub, no guesses, and no student's guesses kept as the instructor's."""
    config.ClearSolutions.code_stub = {"python": STUB}
    config.GenerateAssignment.preprocessors = [*GenerateAssignment.preprocessors.default(), ForStudents]
    config.Execute.timeout = PROFILES["standard"].cell_s  # nbgrader's 30 s are too few to train in
    config.CourseDirectory.ignore = [*CourseDirectory.ignore.default(), "runs", "mylab"]  # which stay with the student
    os.environ.setdefault("LABKIT_COURSE", str(Path(tempfile.gettempdir()) / "labkit-grading"))


def exercise_version(notebook: NotebookNode) -> NotebookNode:
    """A notebook without solutions, guesses and outputs, its checks locked."""
    made, resources = deepcopy(notebook), {}
    for step in (ClearSolutions(code_stub={"python": STUB}), ForStudents(), LockCells(), ClearOutput()):
        made, resources = step.preprocess(made, resources)
    made.metadata["labkit_made"] = _fingerprint(made)
    return made


def _texts(folder: Path) -> dict[Path, str]:
    """What the files of the course have to hold: the authored notebooks, and those made from them."""
    texts = {}
    for path in authored(folder):
        notebook = read_notebook(path)
        texts[path] = without_outputs(notebook)
        texts[folder / path.name] = canonical(exercise_version(notebook))
    return texts


def write(folder: Path, *, force: bool = False) -> list[Path]:
    """Write the exercise notebooks, and the authored ones in canonical form; return what changed.

    Raises:
        UserError: an exercise notebook has answers in it, and not `force`, with which it is kept beside the new one.
    """
    texts = _texts(folder)
    changed = [path for path, text in texts.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    answered = [path for path in changed if path.parent == folder and path.is_file() and has_answers(path)]
    if answered and not force:
        names = ", ".join(map(str, answered))
        raise UserError(
            f"{names}: there are answers in it: move it, or `--force` keeps it beside the new one. Nothing is written."
        )
    for path in answered:
        path.rename(path.with_suffix(f".{time.strftime('%Y%m%d-%H%M%S')}.ipynb.bak"))
    for path in changed:
        replace_text(path, texts[path])
    return changed


def has_answers(path: Path) -> bool:
    """Whether somebody has worked in an exercise notebook: its cells are not those it was made with."""
    notebook = read_notebook(path)
    return notebook.metadata.get("labkit_made") != _fingerprint(notebook)


def _fingerprint(notebook: NotebookNode) -> str:
    """Of what stands in the cells; outputs do not count."""
    return hashlib.sha256("\0".join(cell.source for cell in notebook.cells).encode()).hexdigest()


def drift(folder: Path) -> list[str]:
    """Authored notebooks that break a rule, and exercise notebooks that are not what is made from them."""
    texts = _texts(folder)
    found = [f"{path}: {fault}" for path in authored(folder) for fault in faults(path)]
    own = {path.name[:2] for path in authored(folder)}
    exercises = {name: exercise for name, exercise in all_exercises().items() if name[:2] in own}
    found += [fault for name, exercise in exercises.items() for fault in knocked_out(name, exercise)]
    for path, text in texts.items():
        if path.parent == folder and not (path.is_file() and path.read_text(encoding="utf-8") == text):
            found.append(f"{path}: is missing, or differs from what its authored one gives: run `labkit course build`")
    for path in sorted({*folder.glob("*.ipynb"), *(folder / SOLUTIONS).glob("*.ipynb")} - set(texts)):
        where = "name it as 00_start_here.ipynb" if path.parent != folder else "write its authored one in solutions/"
        found.append(f"{path}: is no notebook of the course: {where}, or delete it")
    return found

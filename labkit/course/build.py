"""Exercise notebooks from authored ones, with nbgrader's own preprocessors; `configure` sets nbgrader up alike."""

from __future__ import annotations

import os
import tempfile
from copy import deepcopy
from pathlib import Path

from nbformat import NotebookNode
from nbgrader.converters import GenerateAssignment
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import ClearOutput, ClearSolutions, LockCells, NbGraderPreprocessor
from traitlets.config import Config

from labkit.course.lint import GUESS, faults
from labkit.course.notebook_file import SOLUTIONS, authored, canonical, read_notebook, without_outputs

STUB = "answer = ...  # YOUR ANSWER HERE, in place of the dots"
"""What stands where the solution was; the check below it says by name that it is not answered yet."""


class ClearGuesses(NbGraderPreprocessor):
    """Puts dots in place of the author's guesses, which would be a student's anchor."""

    def preprocess_cell(self, cell: NotebookNode, resources: dict, index: int) -> tuple[NotebookNode, dict]:
        if cell.cell_type == "code":
            cell.source = without_guesses(cell.source)
        return cell, resources


def without_guesses(source: str) -> str:
    """A cell without its author's guesses.

    >>> without_guesses('guess("50.reached", len(folders), "runs")')
    'guess("50.reached", ..., "runs")'
    """
    return GUESS.sub(r"\1...\2", source)


def configure(config: Config) -> None:
    """Set nbgrader up for this course: our stub, no guesses, and no student's guesses kept as the instructor's."""
    config.ClearSolutions.code_stub = {"python": STUB}
    config.GenerateAssignment.preprocessors = [*GenerateAssignment.preprocessors.default(), ClearGuesses]
    config.CourseDirectory.ignore = [*CourseDirectory.ignore.default(), "runs"]  # students' run folders stay with them
    os.environ.setdefault("LABKIT_COURSE", str(Path(tempfile.gettempdir()) / "labkit-grading"))


def exercise_version(notebook: NotebookNode) -> NotebookNode:
    """A notebook without solutions, guesses and outputs, its checks locked."""
    made, resources = deepcopy(notebook), {}
    for step in (ClearSolutions(code_stub={"python": STUB}), ClearGuesses(), LockCells(), ClearOutput()):
        made, resources = step.preprocess(made, resources)
    return made


def _texts(folder: Path) -> dict[Path, str]:
    """What the files of the course have to hold: the authored notebooks, and those made from them."""
    texts = {}
    for path in authored(folder):
        notebook = read_notebook(path)
        texts[path] = without_outputs(notebook)
        texts[folder / path.name] = canonical(exercise_version(notebook))
    return texts


def write(folder: Path) -> list[Path]:
    """Write the exercise notebooks, and the authored ones in canonical form; return what changed."""
    changed = []
    for path, text in _texts(folder).items():
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8", newline="\n")
            changed.append(path)
    return changed


def drift(folder: Path) -> list[str]:
    """Authored notebooks that break a rule, and exercise notebooks that are not what is made from them."""
    texts = _texts(folder)
    found = [f"{path}: {fault}" for path in authored(folder) for fault in faults(path)]
    for path, text in texts.items():
        if path.parent == folder and not (path.is_file() and path.read_text(encoding="utf-8") == text):
            found.append(f"{path}: is missing, or differs from what its authored one gives: run `labkit course build`")
    for path in sorted({*folder.glob("*.ipynb"), *(folder / SOLUTIONS).glob("*.ipynb")} - set(texts)):
        where = "name it as 00_start_here.ipynb" if path.parent != folder else "write its authored one in solutions/"
        found.append(f"{path}: is no notebook of the course: {where}, or delete it")
    return found

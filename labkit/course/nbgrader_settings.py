"""How nbgrader makes what `labkit course build` makes; `notebooks/solutions/nbgrader_config.py` calls it."""

from __future__ import annotations

import ast
import os
import tempfile
from pathlib import Path

from nbformat import NotebookNode
from nbgrader.converters import GenerateAssignment
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import NbGraderPreprocessor
from traitlets.config import Config

STUB = "answer = ...  # YOUR ANSWER HERE, in place of the dots"
"""What stands where the solution was; the check below it says by name that it is not answered yet."""


class ClearGuesses(NbGraderPreprocessor):
    """Puts dots in place of the author's guesses, which would be a student's anchor."""

    def preprocess_cell(self, cell: NotebookNode, resources: dict, index: int) -> tuple[NotebookNode, dict]:
        if cell.cell_type == "code" and "guess(" in cell.source:
            cell.source = without_guesses(cell.source)
        return cell, resources


def without_guesses(source: str) -> str:
    """A cell without its author's guesses, of which each is a line of its own (`labkit.course.lint` sees to that).

    >>> without_guesses('guess("50.reached", len(folders), "runs")')
    'guess("50.reached", ..., "runs")'
    """
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "guess":
            value, line = node.args[1], lines[node.args[1].lineno - 1].encode()  # columns count bytes
            lines[value.lineno - 1] = (line[: value.col_offset] + b"..." + line[value.end_col_offset :]).decode()
    return "\n".join(lines)


def configure(config: Config) -> None:
    """Set nbgrader up for this course: our stub, no guesses, and no student's guesses kept as the instructor's."""
    config.ClearSolutions.code_stub = {"python": STUB}
    config.GenerateAssignment.preprocessors = [*GenerateAssignment.preprocessors.default(), ClearGuesses]
    config.CourseDirectory.ignore = [*CourseDirectory.ignore.default(), "runs"]  # students' run folders stay with them
    os.environ.setdefault("LABKIT_COURSE", str(Path(tempfile.gettempdir()) / "labkit-grading"))

"""Both notebooks of a lab from its source, with nbgrader's own preprocessors; `configure` sets nbgrader up alike."""

import re
import time
from copy import deepcopy
from itertools import pairwise
from pathlib import Path

import jupytext
from nbformat import NotebookNode, v4
from nbgrader.converters import Autograde, GenerateAssignment
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import (
    CheckCellMetadata,
    ClearOutput,
    ClearSolutions,
    Execute,
    LockCells,
    NbGraderPreprocessor,
)
from traitlets import Float
from traitlets.config import Config

from labkit import project
from labkit.errors import UserError
from labkit.runs import replace_text
from labkit_course.gate import GUESS, faults, knocked_out
from labkit_course.grading import grade
from labkit_course.lab import FOLDER, STATEMENT, all_exercises, sources
from labkit_course.notebook_file import SOLUTIONS, canonical, code_cells, fingerprint, has_answers
from labkit_course.runner import drop_widgets

STUB = "answer = ...  # YOUR ANSWER HERE, in place of the dots"
"""What stands where the solution was; the check below it says by name that it is not answered yet."""
CODE_STUB = "raise NotImplementedError  # YOUR CODE HERE"
"""What stands where the body of a function was"""
YOURS = '<div class="labkit-yours">✎ <b>Yours</b>: the next cell.</div>'
"""What marks a cell that is the student's; the style sheet of `make lab` tints it and the cell."""
ASSISTANT = (FOLDER / "assistant.txt").read_text("utf-8")
"""The cells of a sentence to judge"""
KERNEL = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
CHECKED, ANSWERED, WRITTEN = (
    {"grade": grade, "locked": locked, "schema_version": 3, "solution": solution, "task": False}
    for grade, locked, solution in ((True, True, False), (False, False, True), (True, False, True))
)
COLAB = "colab"
"""Id of the cell that installs labkit on Colab"""
GRADED = {"check": CHECKED, "answer": ANSWERED, "explain": WRITTEN, "claim": WRITTEN}
"""What nbgrader has to know of a cell, by the first word of its title"""


def solutions_version(source: Path) -> NotebookNode:
    """The notebook of a lab with its answers.

    A title of one word is a cell's id. `check 10.auc points=4` is a cell that nbgrader grades, with the id and the
    grade_id check-10-auc unless `id` or `grade_id` follow; `answer`, `explain` and `claim` are alike.

    Raises:
        UserError: a cell has no title, or that of another, or one that means nothing.
    """
    cells, ids = [], set()
    for cell in jupytext.reads(_with_verdict(source), "py:percent").cells:
        title = cell.metadata.get("title", "")
        role, _, name = title.partition(" ")
        if role == "checks":
            continue
        if name and role not in GRADED:
            raise UserError(f"{source}: the title {title!r} begins with none of {', '.join(GRADED)}: write an id.")
        named = f"{role}-{re.sub(r'[._]', '-', name)}" if name else role
        grade_id = cell.metadata.get("grade_id", named)
        made = {"markdown": v4.new_markdown_cell, "code": v4.new_code_cell}[cell.cell_type](cell.source)
        made.id = cell.metadata.get("id", grade_id)
        if not made.id or made.id in ids:
            begin = cell.source.partition("\n")[0]
            raise UserError(f"{source}: the cell that begins with {begin!r} has no title of its own: write one.")
        ids.add(made.id)
        if name:
            made.source = _alone(made.source, role, source.stem[:2])
            made.metadata.nbgrader = GRADED[role] | {"grade_id": grade_id}
            if "points" in cell.metadata:
                made.metadata.nbgrader["points"] = cell.metadata["points"]
        if "tags" in cell.metadata:
            made.metadata.tags = cell.metadata["tags"]
        cells.append(made)
    notebook = v4.new_notebook(cells=cells, metadata=KERNEL)
    notebook.nbformat_minor = 5
    if project.REPOSITORY:
        _add_ways_to_open(notebook, f"notebooks/{source.stem}.ipynb")
    return notebook


def _with_verdict(source: Path) -> str:
    """The text of a lab, with the cells of its sentence to judge in place of the one that has the sentence."""
    text = source.read_text(encoding="utf-8")
    cell = re.compile(STATEMENT.pattern + r'\n"""\n(?P<sentence>.*?)\n"""\n', re.MULTILINE | re.DOTALL)
    return cell.sub(lambda found: ASSISTANT.format(lab=source.stem[:2], sentence=f"\n> {found['sentence']}\n"), text)


def _alone(source: str, role: str, lab: str) -> str:
    """A graded cell with its own import, so that it needs no other, and with its claim under the name of its lab."""
    source = re.sub(r'^claim\("(?=\w+")', f'claim("{lab}.', source, flags=re.MULTILINE)
    imports = re.search(rf"^from labkit_course import .*\b{role}\b", source, re.MULTILINE)
    return source if role == "answer" or imports else f"from labkit_course import {role}\n\n{source}"


def _add_ways_to_open(notebook: NotebookNode, path: str) -> None:
    """Put badges for Binder and Colab below the title, and the cell that installs labkit on Colab after the first."""
    badges = (
        f"[![Open in Binder](https://mybinder.org/badge_logo.svg)]({project.binder_url(path)})\n"
        f"[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]({project.colab_url(path)})"
    )
    title, _, rest = notebook.cells[0].source.partition("\n\n")
    notebook.cells[0].source = f"{title}\n\n{badges}\n\n{rest}"
    install = f"install --quiet 'labkit[lab] @ git+{project.REPOSITORY}@{project.BRANCH}'"
    cell = v4.new_code_cell(
        "import sys\n\n"
        'if "google.colab" in sys.modules:  # Colab has torch already; labkit is added to it\n'
        f'    get_ipython().run_line_magic("pip", "{install}")'
    )
    cell.id = COLAB
    notebook.cells.insert(1, cell)


class ForStudents(NbGraderPreprocessor):
    """Removes the author's guesses and explanations, puts a stub in code, folds cells that students need not read."""

    def preprocess(self, nb: NotebookNode, resources: dict) -> tuple[NotebookNode, dict]:
        for before, cell in pairwise(nb.cells):
            is_theirs = cell.metadata.get("nbgrader", {}).get("solution") or GUESS.search(cell.source)
            if is_theirs and cell.cell_type == "code" and before.cell_type == "markdown":
                before.source += f"\n\n{YOURS}"
        return super().preprocess(nb, resources)

    def preprocess_cell(self, cell: NotebookNode, resources: dict, index: int) -> tuple[NotebookNode, dict]:
        if cell.cell_type == "code":
            if cell.id == COLAB or "results" in cell.metadata.get("tags", []):
                cell.metadata["jupyter"] = {"source_hidden": True}  # of which a student has no use
            source = GUESS.sub(r"\1...\2", cell.source).replace(", model_answer", "")
            cell.source = re.sub(rf"^( +){re.escape(STUB)}$", rf"\1{CODE_STUB}", source, flags=re.MULTILINE)
        return cell, resources


class WithoutCopies(NbGraderPreprocessor):
    """Makes copies of graded cells, and cells of another lab, cells like any other.

    nbgrader takes away the name of a copy and then takes the cell for one of an old version, which ends the grading of
    everybody, or for one without a name, which leaves this notebook without a grade.
    """

    def preprocess_cell(self, cell: NotebookNode, resources: dict, index: int) -> tuple[NotebookNode, dict]:
        if not cell.metadata.get("nbgrader", {}).get("grade_id"):
            cell.metadata.pop("nbgrader", None)
        return cell, resources


class GradeAlone(NbGraderPreprocessor):
    """In the place of `Execute`: each answer is checked in a process of its own, and nothing else runs."""

    limit_s = Float(30.0, help="Seconds that an answer may take.").tag(config=True)

    def preprocess(self, nb: NotebookNode, resources: dict) -> tuple[NotebookNode, dict]:
        drop_widgets(nb)
        grade(code_cells(nb), self.limit_s)
        return nb, resources


def configure(config: Config) -> None:
    """Set nbgrader up for this course: our stub, no guesses, and answers that are graded without running the rest."""
    config.ClearSolutions.code_stub = {"python": STUB}
    config.GenerateAssignment.preprocessors = [*(GenerateAssignment.preprocessors.default() or ()), ForStudents]
    autograde = Autograde(config=Config())
    config.Autograde.sanitize_preprocessors = [
        part
        for each in autograde.sanitize_preprocessors
        if each is not ClearOutput
        for part in ([WithoutCopies, each] if each is CheckCellMetadata else [each])
    ]
    config.Autograde.autograde_preprocessors = [
        GradeAlone if each is Execute else each for each in autograde.autograde_preprocessors
    ]
    own = ("runs", "mylab")  # which stay with the student
    config.CourseDirectory.ignore = [*(CourseDirectory.ignore.default() or ()), *own]


def exercise_version(notebook: NotebookNode) -> NotebookNode:
    """A notebook without solutions, guesses and outputs, its checks locked."""
    made, resources = deepcopy(notebook), {}
    for step in (ClearSolutions(code_stub={"python": STUB}), ForStudents(), LockCells(), ClearOutput()):
        made, resources = step.preprocess(made, resources)  # ty: ignore[invalid-argument-type]  # any dictionary
    made.metadata["labkit_made"] = fingerprint(made)
    return made


def _built(labs: Path, folder: Path) -> dict[Path, str]:
    """The text of each notebook below a folder, as the sources of the labs give it."""
    texts = {}
    for source in sources(labs):
        notebook = solutions_version(source)
        texts[folder / SOLUTIONS / f"{source.stem}.ipynb"] = canonical(notebook)
        texts[folder / f"{source.stem}.ipynb"] = canonical(exercise_version(notebook))
    return texts


def write(folder: Path, *, force: bool = False, labs: Path = FOLDER) -> list[Path]:
    """Write the notebooks of the labs; return what changed.

    Args:
        folder: of the exercise notebooks; those with the answers are in its `solutions`.
        force: whether an exercise notebook with answers in it is replaced, and kept next to the new one.
        labs: the folder of the sources.

    Raises:
        UserError: an exercise notebook has answers in it, and not `force`.
    """
    texts = _built(labs, folder)
    changed = [path for path, text in texts.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    answered = [path for path in changed if path.parent == folder and path.is_file() and has_answers(path)]
    if answered and not force:
        names = ", ".join(map(str, answered))
        raise UserError(
            f"{names}: there are answers in it: move it, or `--force` keeps it next to the new one. Nothing is written."
        )
    for path in answered:
        path.rename(path.with_suffix(f".{time.strftime('%Y%m%d-%H%M%S')}.ipynb.bak"))
    for path in changed:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_text(path, texts[path])
    return changed


def drift(folder: Path, labs: Path = FOLDER) -> list[str]:
    """Labs that break a rule, exercises whose checks do, and notebooks that are not what their source gives."""
    found = [f"{path}: {fault}" for path in sources(labs) for fault in faults(solutions_version(path), path.stem)]
    own = {path.name[:2] for path in sources(labs)}
    exercises = {name: exercise for name, exercise in all_exercises().items() if name[:2] in own}
    found += [fault for name, exercise in exercises.items() for fault in knocked_out(name, exercise)]
    texts = _built(labs, folder)
    for path, text in texts.items():
        if not (path.is_file() and path.read_text(encoding="utf-8") == text):
            found.append(f"{path}: is missing, or is not what its source gives: run `labkit course build`")
    for path in sorted({*folder.glob("*.ipynb"), *(folder / SOLUTIONS).glob("*.ipynb")} - set(texts)):
        found.append(f"{path}: no lab has this name: write its source in {labs}, or delete it")
    return found

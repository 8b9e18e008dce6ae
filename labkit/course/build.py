"""Exercise notebooks from authored ones, with nbgrader's own preprocessors."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

from nbformat import NotebookNode

from labkit.course.lint import faults
from labkit.course.notebook_file import SOLUTIONS, authored, canonical, read_notebook
from labkit.errors import UserError


@dataclass(frozen=True)
class Built:
    """One exercise notebook."""

    path: Path
    text: str

    @property
    def is_current(self) -> bool:
        """Whether the file holds just this."""
        return self.path.is_file() and self.path.read_text(encoding="utf-8") == self.text


def build(folder: Path) -> list[Built]:
    """Make the exercise notebooks of a folder from those in its `solutions`, without writing them.

    Raises:
        UserError: there are none, or nbgrader is not installed.
    """
    return [Built(folder / path.name, canonical(exercise_version(read_notebook(path)))) for path in authored(folder)]


def exercise_version(notebook: NotebookNode) -> NotebookNode:
    """A notebook without solutions, guesses and outputs, its checks locked.

    Raises:
        UserError: nbgrader is not installed.
    """
    try:
        from nbgrader.preprocessors import ClearOutput, ClearSolutions, LockCells

        from labkit.course.nbgrader_settings import STUB, ClearGuesses
    except ImportError as error:
        raise UserError(
            'building the exercises needs nbgrader: install it with `python -m pip install "labkit[course]"`.'
        ) from error
    resources: dict = {}
    made = deepcopy(notebook)
    for step in (ClearSolutions(code_stub={"python": STUB}), ClearGuesses(), LockCells(), ClearOutput()):
        made, resources = step.preprocess(made, resources)
    return made


def write(folder: Path) -> list[Path]:
    """Write the exercise notebooks, and the authored ones in canonical form; return what changed.

    An exercise notebook whose authored one is gone is left alone: `drift` names it.
    """
    changed = []
    for path in authored(folder):
        text = canonical(read_notebook(path))
        if text != path.read_text(encoding="utf-8"):
            path.write_text(text, encoding="utf-8", newline="\n")
            changed.append(path)
    for built in build(folder):
        if not built.is_current:
            built.path.write_text(built.text, encoding="utf-8", newline="\n")
            changed.append(built.path)
    return changed


def drift(folder: Path) -> list[str]:
    """Authored notebooks that break a rule, and exercise notebooks that are not what is made from them."""
    found = [f"{path}: {fault}" for path in authored(folder) for fault in faults(path)]
    made = build(folder)
    for built in made:
        if not built.path.is_file():
            found.append(f"{built.path}: is missing: run `labkit course build`")
        elif not built.is_current:
            found.append(f"{built.path}: differs from what its authored notebook gives: run `labkit course build`")
    known = {built.path.name for built in made}
    strays = [path for path in sorted(folder.glob("*.ipynb")) if path.name not in known]
    others = sorted(set((folder / SOLUTIONS).glob("*.ipynb")) - set(authored(folder)))
    found += [f"{path}: is no notebook of the course: name it as 00_start_here.ipynb, or delete it" for path in others]
    return found + [f"{path}: has no authored notebook in solutions/: write one, or delete it" for path in strays]

"""Notebook files: where they are, and the one way they are written."""

import hashlib
from pathlib import Path
from typing import Any

from labkit.errors import UserError
from labkit.plots import import_nbformat

import_nbformat()
import nbformat  # noqa: E402

SOLUTIONS = "solutions"
"""The folder of the authored notebooks, inside that of the exercise notebooks made from them."""


def read_notebook(path: Path) -> nbformat.NotebookNode:
    """Read a notebook.

    Raises:
        UserError: the file is none.
    """
    try:
        notebook = nbformat.reads(path.read_text(encoding="utf-8"), as_version=4)
        if odd := [place for place, cell in enumerate(notebook.cells, 1) if not _is_whole(cell)]:
            raise ValueError(f"cell {odd[0]} lacks its type, source or metadata, or has another kind of value there")
        return notebook
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such notebook.") from None
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError, nbformat.ValidationError) as error:
        raise UserError(f"{path}: this is no notebook that can be read ({error}): restore it.") from error


def _is_whole(cell: Any) -> bool:
    """Whether a cell has what labkit reads of it. Jupyter shows notebooks of which more is odd."""
    if not isinstance(cell, dict) or not isinstance(cell.get("metadata"), dict):
        return False
    nbgrader, outputs = cell.metadata.get("nbgrader", {}), cell.get("outputs", [])
    return (
        all(isinstance(cell.get(name), str) for name in ("cell_type", "source"))
        and (isinstance(nbgrader, dict) and isinstance(nbgrader.get("grade_id", ""), str))
        and (isinstance(outputs, list) and all(isinstance(output, dict) for output in outputs))
    )


def notebooks_in(folder: Path) -> list[Path]:
    """The notebooks of a folder, in the order of the course.

    Raises:
        UserError: there are none.
    """
    paths = sorted(folder.glob("[0-9]*.ipynb"))
    if not paths:
        raise UserError(
            f"{folder}: there is no notebook such as 00_start_here.ipynb: name another folder with --notebooks."
        )
    return paths


def authored(folder: Path) -> list[Path]:
    """The authored notebooks below the folder of notebooks."""
    return notebooks_in(folder / SOLUTIONS)


def code_cells(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def has_answers(path: Path) -> bool:
    """Whether a student worked in an exercise notebook: its cells are not those that it was made with."""
    notebook = read_notebook(path)
    return notebook.metadata.get("labkit_made") != fingerprint(notebook)


def fingerprint(notebook: nbformat.NotebookNode) -> str:
    """A hash of the cells' sources; outputs do not count."""
    return hashlib.sha256("\0".join(cell.source for cell in notebook.cells).encode()).hexdigest()


def canonical(notebook: nbformat.NotebookNode) -> str:
    """The text of a notebook file: nbformat sorts the keys, so that a change shows as the lines that changed."""
    return nbformat.writes(notebook) + "\n"

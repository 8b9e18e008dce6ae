"""Notebook files: where they are, and the one way they are written."""

from __future__ import annotations

import ast
import json
from pathlib import Path

from labkit.errors import UserError
from labkit.quick_nbformat import import_nbformat

import_nbformat()
import nbformat  # noqa: E402

WIDGET = "application/vnd.jupyter.widget-view+json"
"""The type of an output that is an interactive view."""

SOLUTIONS = "solutions"
"""The folder of the authored notebooks, inside that of the exercise notebooks made from them."""


def read_notebook(path: Path) -> nbformat.NotebookNode:
    """Read a notebook.

    Raises:
        UserError: the file is none.
    """
    try:
        return nbformat.reads(path.read_text(encoding="utf-8"), as_version=4)
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such notebook.") from None
    except (ValueError, KeyError, AttributeError, nbformat.ValidationError) as error:
        raise UserError(f"{path}: this is no notebook that can be read ({error}): restore it.") from error


def called_names(source: str) -> set[str]:
    """The names of the functions and methods that a cell calls; none where it holds magics, which are no Python.

    >>> sorted(called_names("show(figures.roofline(x))"))
    ['roofline', 'show']
    """
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return set()
    called = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return {getattr(function, "id", getattr(function, "attr", "")) for function in called}


def drop_widgets(notebook: nbformat.NotebookNode) -> None:
    """Leave words where interactive views are: their state weighs megabytes, and without a kernel they do nothing."""
    notebook.metadata.pop("widgets", None)
    for output in (output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs):
        if output.get("data", {}).pop(WIDGET, None) is not None:
            output.data["text/plain"] = "(An interactive view is here while the notebook runs.)"


def canonical(notebook: nbformat.NotebookNode | dict) -> str:
    """The text of a notebook file: JSON with sorted keys, so that a change shows as the lines that changed.

    Args:
        notebook: its cells' sources may be texts or lists of lines.
    """
    content = json.loads(nbformat.writes(nbformat.from_dict(notebook)))
    return json.dumps(content, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def authored(folder: Path) -> list[Path]:
    """The authored notebooks below the folder of notebooks, in the order of the course.

    Raises:
        UserError: there are none.
    """
    paths = sorted((folder / SOLUTIONS).glob("[0-9]*.ipynb"))
    if not paths:
        raise UserError(f"{folder / SOLUTIONS}: there is no notebook such as 00_start_here.ipynb: name another folder.")
    return paths

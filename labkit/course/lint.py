"""What an authored notebook must look like before it is committed: each function yields what is wrong."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from statistics import median

from nbformat import NotebookNode

from labkit.course.colab import COLAB_CELL
from labkit.course.exercises import all_exercises
from labkit.course.notebook_file import called_names, canonical, read_notebook
from labkit.project import binder_url, colab_url

LONGEST_CELL = 12
LONGEST_MEDIAN = 5
FEWEST_GUESSES = 3
FEWEST_EXERCISES = 3
ANSWER = {"grade": False, "locked": False, "schema_version": 3, "solution": True, "task": False}
FIGURE = re.compile(r"^(px|go|plt)\.|^(fig|figure)\b|\.(figure|fig)$")
"""How the last expression of a cell looks when it is a figure."""
GUESS = re.compile(r'guess\("[\w.]+", [^"]+(, "[^"]+")?\)')
CHECK = {"grade": True, "locked": True, "schema_version": 3, "solution": False, "task": False}


def faults(path: Path) -> list[str]:
    """What is wrong with one authored notebook, a line each, naming the cell."""
    notebook = read_notebook(path)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    if not code:
        return ["has no code cell"]
    return [
        *_file_faults(path.read_text(encoding="utf-8"), notebook),
        *_heading_faults(notebook),
        *_opening_faults(notebook, f"notebooks/{path.name}"),
        *_code_faults(notebook, code),
        *_exercise_faults(code),
    ]


def _file_faults(text: str, notebook: NotebookNode) -> Iterator[str]:
    if text != canonical(notebook):
        yield "is not canonical JSON (sorted, indent 1, one newline at the end): `labkit course build` writes it so"
    if (notebook.nbformat, notebook.nbformat_minor) != (4, 5):
        yield "is not nbformat 4.5"
    if notebook.metadata.get("kernelspec", {}).get("name") != "python3":
        yield "its kernel is not python3"
    if "widgets" in notebook.metadata:
        yield "has widget state: clear it before you save"
    for cell in notebook.cells:
        if cell.cell_type == "code" and (cell.outputs or cell.execution_count is not None):
            yield f"cell {cell.id}: has outputs: clear them before you commit"


def _heading_faults(notebook: NotebookNode) -> Iterator[str]:
    prose = "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    prose = re.sub(r"^(```|~~~).*?^\1", "", prose, flags=re.MULTILINE | re.DOTALL)
    if underlined := re.search(r"^(\S.*)\n(=+|-+)[ \t]*$", prose, re.MULTILINE):
        yield f"underlines the heading {underlined[1]!r}: begin it with #"
    levels = [len(marks) for marks in re.findall(r"^(#+) ", prose, re.MULTILINE)]
    if levels[:1] != [1] or levels.count(1) != 1:
        yield f"has {levels.count(1)} headings of level 1, or does not begin with it"
    if any(later > earlier + 1 for earlier, later in pairwise(levels)):
        yield "skips a heading level"


def _opening_faults(notebook: NotebookNode, address: str) -> Iterator[str]:
    first, last = notebook.cells[0].source, notebook.cells[-1].source
    for url in (binder_url(address), colab_url(address)):
        if f"]({url})" not in first:
            yield f"the first cell has no badge to {url}"
    if len(notebook.cells) < 2 or notebook.cells[1].source != COLAB_CELL:
        yield "the second cell is not the one that installs on Colab (labkit.course.colab)"
    for words in ("you will be able to", "**Time:**", "**Prerequisites:**"):
        if words not in first:
            yield f"the first cell does not say {words}"
    if not last.startswith("## Recap") or "\n- " not in last or "**Next:**" not in last:
        yield "the last cell is no recap in bullets with a next notebook"


def _code_faults(notebook: NotebookNode, code: list[NotebookNode]) -> Iterator[str]:
    tagged = {tag: [cell for cell in code if tag in cell.metadata.get("tags", [])] for tag in ("parameters", "results")}
    for tag, cells in tagged.items():
        if len(cells) != 1:
            yield f"has {len(cells)} cells tagged {tag}: it needs one"
    if not any('profile = "standard"' in cell.source for cell in tagged["parameters"]):
        yield 'has no parameter profile = "standard"'
    lines = [len(cell.source.splitlines()) for cell in code]
    if median(lines) > LONGEST_MEDIAN:
        yield f"half of its code cells have more than {LONGEST_MEDIAN} lines"
    for cell, count in zip(code, lines, strict=True):
        if count > LONGEST_CELL:
            yield f"cell {cell.id}: has {count} lines, and {LONGEST_CELL} is the most: make it a function of labkit"
        yield from (f"cell {cell.id}: {fault}" for fault in _source_faults(cell.source))
    for before, cell in pairwise(notebook.cells):
        is_check = cell.metadata.get("nbgrader", {}).get("grade", False)
        if cell.cell_type == before.cell_type == "code" and not is_check:
            yield f"cell {cell.id}: no prose before it"


def _source_faults(source: str) -> Iterator[str]:
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        yield f"is no Python ({error.msg}, line {error.lineno})"
        return
    names = called_names(source)
    if any(name.startswith("figure_") for name in names) and "show" not in names:
        yield "draws a figure without a description in words: pass it to show()"
    if "display" in names:
        yield "calls display(), which gives a figure no description in words: pass it to show()"
    if tree.body and isinstance(tree.body[-1], ast.Expr) and not source.rstrip().endswith(";"):
        shown = ast.unparse(tree.body[-1].value)
        if FIGURE.search(shown):
            yield f"ends in the figure {shown}, which gives no description in words: pass it to show()"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in ("show", "plot"):
            yield f"{ast.unparse(node)}() gives no description in words: pass a plotly figure to show()"
        if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
            yield f"imports * from {node.module}: import the names it uses"


def _exercise_faults(code: list[NotebookNode]) -> Iterator[str]:
    guessed = sum(len(re.findall(r"^guess\(", cell.source, re.MULTILINE)) for cell in code)
    if guessed < FEWEST_GUESSES:
        yield f"has {guessed} guesses: it needs {FEWEST_GUESSES}"
    for line in (line for cell in code for line in cell.source.splitlines()):
        if line.lstrip().startswith("guess(") and not GUESS.fullmatch(line):
            yield f'guesses by {line!r}: write guess("name", value, "unit") as a line of its own'
    source = "\n".join(cell.source for cell in code)
    for name in re.findall(r'^guess\("([\w.]+)"', source, re.MULTILINE):
        if f'reveal("{name}", ' not in source:
            yield f"never reveals the guess {name!r}"
    for name in re.findall(r'^check\("([\w.]+)"', source, re.MULTILINE):
        if name not in all_exercises():
            yield f"checks {name!r}, which is no exercise of labkit.course.exercises"
    ids = Counter(cell.metadata["nbgrader"].get("grade_id") for cell in code if "nbgrader" in cell.metadata)
    yield from (f"has {count} cells with the nbgrader grade_id {name!r}" for name, count in ids.items() if count > 1)
    checks = 0
    for before, cell in pairwise(code):
        graded = cell.metadata.get("nbgrader", {})
        if not graded.get("grade"):
            continue
        checks += 1
        answer = before.metadata.get("nbgrader", {})
        if {**graded, **CHECK} != graded or graded.get("points", 0) <= 0 or not graded.get("grade_id"):
            yield f"cell {cell.id}: its nbgrader metadata is not that of a check with points"
        if {**answer, **ANSWER} != answer or "### BEGIN SOLUTION" not in before.source:
            yield f"cell {before.id}: is no answer that nbgrader clears, though a check follows"
        if "check(" not in cell.source:
            yield f"cell {cell.id}: is graded, and checks nothing"
    if checks < FEWEST_EXERCISES:
        yield f"has {checks} exercises: it needs {FEWEST_EXERCISES}"

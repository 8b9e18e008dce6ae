"""What a notebook must look like before it is committed, and after it ran: each function lists what is wrong."""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Iterator
from itertools import pairwise
from statistics import median
from typing import Any

import nbformat

from labkit.project import binder_url, colab_url

LONGEST_CELL = 12
LONGEST_MEDIAN = 5
PLOTLY = "application/vnd.plotly.v1+json"
WIDGETS = "application/vnd.jupyter.widget-state+json"
PROVENANCE = ("measured", "recorded", "emulated", "predicted")
ALLOWED_STDERR: tuple[str, ...] = ()
"""Beginnings of lines that a cell may write to stderr."""


def format_faults(text: str, path: str) -> list[str]:
    """What is wrong with a notebook as committed.

    Args:
        text: the file's content.
        path: its path in the repository, which the badges name.
    """
    notebook = nbformat.reads(text, as_version=nbformat.NO_CONVERT)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [
        *_file_faults(text, notebook),
        *_heading_faults(notebook),
        *_opening_faults(notebook, path),
        *_code_faults(notebook, code),
        *(f"cell {cell.id}: has outputs" for cell in code if cell.outputs or cell.execution_count is not None),
    ]


def _file_faults(text: str, notebook: nbformat.NotebookNode) -> Iterator[str]:
    if text != json.dumps(json.loads(text), indent=1, ensure_ascii=False, sort_keys=True) + "\n":
        yield "is not canonical JSON (sorted, indent 1, one newline at the end)"
    if (notebook.nbformat, notebook.nbformat_minor) != (4, 5):
        yield "is not nbformat 4.5"
    if notebook.metadata.get("kernelspec", {}).get("name") != "python3":
        yield "kernel is not python3"
    if "widgets" in notebook.metadata:
        yield "has widget state"


def _heading_faults(notebook: nbformat.NotebookNode) -> Iterator[str]:
    prose = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    levels = [len(marks) for marks in re.findall(r"^(#+) ", prose, re.MULTILINE)]
    if levels.count(1) != 1 or levels[0] != 1:
        yield f"has {levels.count(1)} headings of level 1, or does not begin with it"
    if any(later > earlier + 1 for earlier, later in pairwise(levels)):
        yield "skips a heading level"


def _opening_faults(notebook: nbformat.NotebookNode, path: str) -> Iterator[str]:
    first, last = notebook.cells[0].source, notebook.cells[-1].source
    for address in (binder_url(path), colab_url(path)):
        if f"]({address})" not in first:
            yield f"the first cell has no badge to {address}"
    for words in ("you will be able to", "**Time:**", "**Prerequisites:**"):
        if words not in first:
            yield f"the first cell does not say {words}"
    if not last.startswith("## Recap") or "\n- " not in last or "**Next:**" not in last:
        yield "the last cell is no recap in bullets with a next notebook"


def _code_faults(notebook: nbformat.NotebookNode, code: list[nbformat.NotebookNode]) -> Iterator[str]:
    tagged = {tag: [cell for cell in code if tag in cell.metadata.get("tags", [])] for tag in ("parameters", "results")}
    for tag, cells in tagged.items():
        if len(cells) != 1:
            yield f"has {len(cells)} cells tagged {tag}"
    if not any('profile = "standard"' in cell.source for cell in tagged["parameters"]):
        yield 'no parameter profile = "standard"'
    lines = [sum(bool(line.strip()) for line in cell.source.splitlines()) for cell in code]
    if median(lines) > LONGEST_MEDIAN:
        yield f"half of the code cells have more than {LONGEST_MEDIAN} lines"
    for cell, count in zip(code, lines, strict=True):
        if count > LONGEST_CELL:
            yield f"cell {cell.id}: has {count} lines"
        names = [
            alias.name
            for node in ast.walk(ast.parse(cell.source))
            for alias in getattr(node, "names", [])
            if isinstance(node, ast.ImportFrom)
        ]
        if "*" in names:
            yield f"cell {cell.id}: imports *"
    for before, cell in pairwise(notebook.cells):
        if cell.cell_type == before.cell_type == "code":
            yield f"cell {cell.id}: no prose before it"


def execution_faults(notebook: nbformat.NotebookNode) -> list[str]:
    """What papermill lets pass in a notebook that it executed without an error."""
    faults = []
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        if cell.execution_count is None:
            faults.append(f"cell {cell.id}: never ran")
        if _holds_error(cell.outputs):
            faults.append(f"cell {cell.id}: error in its output")
        faults += [f"cell {cell.id}: stderr: {line}" for line in _stderr_lines(cell)]
        faults += [f"cell {cell.id}: {fault}" for fault in _figure_faults(cell.outputs)]
    if _holds_error(notebook.metadata.get("widgets", {}).get(WIDGETS, {})):
        faults.append("error hidden in the widget state")
    return faults


def read_results(notebook: nbformat.NotebookNode) -> dict[str, Any]:
    """The dictionary that the cell tagged `results` printed as JSON."""
    (cell,) = [cell for cell in notebook.cells if "results" in cell.metadata.get("tags", [])]
    return json.loads("".join(output.text for output in cell.outputs if output.output_type == "stream"))


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def _holds_error(content: Any) -> bool:
    if isinstance(content, dict):
        return content.get("output_type") == "error" or any(_holds_error(value) for value in content.values())
    return isinstance(content, list) and any(_holds_error(value) for value in content)


def _stderr_lines(cell: nbformat.NotebookNode) -> list[str]:
    written = "".join(output.text for output in cell.outputs if output.get("name") == "stderr")
    return [line for line in written.splitlines() if line.strip() and not line.startswith(ALLOWED_STDERR)]


def _figure_faults(outputs: list[nbformat.NotebookNode]) -> Iterator[str]:
    for position, output in enumerate(outputs):
        figure = output.get("data", {}).get(PLOTLY)
        if figure is None:
            continue
        for axis in ("xaxis", "yaxis"):
            if not figure["layout"].get(axis, {}).get("title", {}).get("text"):
                yield f"a figure's {axis} has no title"
        if not any(word in trace.get("name", "") for trace in figure["data"] for word in PROVENANCE):
            yield "a figure's legend does not say where its numbers come from"
        if "sendChartToCloud" not in figure.get("config", {}).get("modeBarButtonsToRemove", []):
            yield "a figure can be uploaded from its toolbar"
        following = outputs[position + 1 :]
        if not any("Horizontal axis" in later.get("text", "") for later in following):
            yield "a figure has no description in words"

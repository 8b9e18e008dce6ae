"""What papermill lets pass in a notebook that it executed: each function yields what is wrong."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from nbformat import NotebookNode

from labkit.course.notebook_file import WIDGET, called_names
from labkit.course.results import MIME as RESULTS
from labkit.course.results import breaches
from labkit.plots.show import MIME as PLOTLY

WIDGETS = "application/vnd.jupyter.widget-state+json"
PROVENANCE = ("measured", "recorded", "emulated", "predicted")
ALLOWED_MIME = {
    "text/plain",
    "text/html",
    "text/markdown",
    PLOTLY,
    WIDGET,
    RESULTS,
}
SHOWN_BY = {
    "show": PLOTLY,
    "monitor": WIDGET,
    "live": WIDGET,
    "explore": WIDGET,
    "profile_view": WIDGET,
    "results": RESULTS,
    "Audio": "text/html",
}
"""What a cell has to put out that calls a function of this name."""
ALLOWED_STDERR: tuple[str, ...] = ()
"""Beginnings of lines that a cell may write to stderr."""


def execution_faults(notebook: NotebookNode) -> list[str]:
    """What is wrong with an executed notebook, a line each, naming the cell."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    found = [f"cell {cell.id}: never ran" for cell in code if cell.execution_count is None]
    found += [fault for cell in code for fault in _cell_faults(cell)]
    found += _hidden_errors(notebook)
    record = read_results(notebook)
    if record is None:
        found.append("gave no results record: call labkit.course.results in a cell tagged results")
    else:
        found += [f"results: {breach}" for breach in breaches(record)]
    return found


def faults_until_stopped(notebook: NotebookNode) -> list[str]:
    """What is wrong with the cells of a notebook that ran before the one whose error stopped it."""
    ran = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.execution_count is not None]
    return [fault for cell in ran[:-1] for fault in _cell_faults(cell)] + _hidden_errors(notebook)


def _cell_faults(cell: NotebookNode) -> Iterator[str]:
    for error in errors_in(cell.outputs):
        yield f"cell {cell.id}: error in its output: {error}"
    for fault in (*_stderr_faults(cell), *_mime_faults(cell), *_figure_faults(cell.outputs)):
        yield f"cell {cell.id}: {fault}"


def _hidden_errors(notebook: NotebookNode) -> list[str]:
    hidden = errors_in(notebook.metadata.get("widgets", {}).get(WIDGETS, {}))
    return [f"an error is hidden in the widget state: {error}" for error in hidden]


def read_results(notebook: NotebookNode) -> dict[str, dict[str, Any]] | None:
    """The results record: name → {"value", "low", "high"}; None where there is none."""
    for cell in notebook.cells:
        if "results" in cell.metadata.get("tags", []):
            for output in cell.outputs:
                if RESULTS in output.get("data", {}):
                    return output.data[RESULTS]
    return None


def count_figures(notebook: NotebookNode) -> int:
    outputs = (output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs)
    return sum(PLOTLY in output.get("data", {}) for output in outputs)


def errors_in(content: Any) -> Iterator[str]:
    """The error outputs anywhere inside: widgets keep theirs deep in their state."""
    if isinstance(content, dict) and content.get("output_type") == "error":
        yield f"{content.get('ename')}: {content.get('evalue')}"
    elif isinstance(content, dict | list):
        for value in content.values() if isinstance(content, dict) else content:
            yield from errors_in(value)


def _stderr_faults(cell: NotebookNode) -> list[str]:
    written = "".join(output.text for output in cell.outputs if output.get("name") == "stderr")
    return [f"stderr: {line}" for line in written.splitlines() if line.strip() and not line.startswith(ALLOWED_STDERR)]


def _mime_faults(cell: NotebookNode) -> Iterator[str]:
    shown = {mime for output in cell.outputs for mime in output.get("data", {})}
    for name in sorted(called_names(cell.source) & SHOWN_BY.keys()):
        if SHOWN_BY[name] not in shown:
            yield f"calls {name}, and no {SHOWN_BY[name]} came out"
    for output in cell.outputs:
        unexpected = sorted(set(output.get("data", {})) - ALLOWED_MIME)
        if unexpected:
            yield f"an output of an unexpected type: {', '.join(unexpected)}"


def _figure_faults(outputs: list[NotebookNode]) -> Iterator[str]:
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
        # its own description stands before the next figure
        rest = itertools.takewhile(lambda later: PLOTLY not in later.get("data", {}), outputs[position + 1 :])
        following = [later.get("data", {}).get("text/html", "") for later in rest]
        if not any("Horizontal axis" in html for html in following):
            yield "a figure has no description in words"
        elif not any("<table" in html for html in following):
            yield "a figure's description has no table"

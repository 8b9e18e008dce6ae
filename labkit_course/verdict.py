"""What papermill lets pass in a notebook that it executed: each function yields what is wrong."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any, get_args

from nbformat import NotebookNode

from labkit.plots import MIME as PLOTLY
from labkit.runs import Kind
from labkit_course.claims import MIME as CLAIM
from labkit_course.notebook_file import code_cells
from labkit_course.results_cell import MIME as RESULTS

WIDGET = "application/vnd.jupyter.widget-view+json"
"""The type of an output that is an interactive view."""
WIDGETS = "application/vnd.jupyter.widget-state+json"
PROVENANCE = get_args(Kind)
ALLOWED_MIME = {"text/plain", "text/html", "text/markdown", PLOTLY, WIDGET, RESULTS, CLAIM}
SHOWN_BY = {"show": "text/html", "claim": CLAIM, "results": RESULTS, "Audio": "text/html"} | dict.fromkeys(
    ("monitor", "live", "explore", "prices", "profile_view"), WIDGET
)
"""What a cell has to put out that calls a function of this name."""


def execution_faults(notebook: NotebookNode) -> list[str]:
    """What is wrong with an executed notebook, a line each, naming the cell."""
    code = code_cells(notebook)
    found = [f"cell {cell.id}: never ran" for cell in code if cell.execution_count is None]
    found += output_faults(notebook, code)
    tagged = [cell.outputs for cell in code if "results" in cell.metadata.get("tags", [])]
    records = list(_of_type(RESULTS, itertools.chain(*tagged)))
    if not records:
        return [*found, "gave no results record: call labkit_course.results_cell in a cell tagged results"]
    return found + [
        f"results: {name} is {entry['value']:g}, not from {entry['low']:g} to {entry['high']:g}"
        for name, entry in itertools.chain(*(record.items() for record in records))
        if entry["value"] is not None and not entry["low"] <= entry["value"] <= entry["high"]
    ]


def faults_until_stopped(notebook: NotebookNode) -> list[str]:
    """What is wrong with the cells of a notebook that ran before the one whose error stopped it."""
    return output_faults(notebook, [cell for cell in code_cells(notebook) if cell.execution_count is not None][:-1])


def output_faults(notebook: NotebookNode, cells: list[NotebookNode]) -> list[str]:
    """What is wrong with what these cells put out, and with the state of the notebook's widgets."""
    found = [f"cell {cell.id}: {fault}" for cell in cells for fault in _cell_faults(cell)]
    hidden = _errors_in(notebook.metadata.get("widgets", {}).get(WIDGETS, {}))
    return found + [f"an error is hidden in the widget state: {error}" for error in hidden]


def count_figures(notebook: NotebookNode) -> int:
    return sum(1 for cell in code_cells(notebook) for _ in _of_type(PLOTLY, cell.outputs))


def drop_widgets(notebook: NotebookNode) -> None:
    """Leave words where interactive views are: their state weighs megabytes, and without a kernel they do nothing."""
    notebook.metadata.pop("widgets", None)
    for output in (output for cell in code_cells(notebook) for output in cell.outputs):
        if output.get("data", {}).pop(WIDGET, None) is not None:
            output.data["text/plain"] = "(An interactive view is here while the notebook runs.)"


def _of_type(mime: str, outputs: Any) -> Iterator[Any]:
    return (output.data[mime] for output in outputs if mime in output.get("data", {}))


def _errors_in(content: Any) -> Iterator[str]:
    """The error outputs anywhere inside: widgets keep theirs deep in their state."""
    if isinstance(content, dict) and content.get("output_type") == "error":
        yield f"{content.get('ename')}: {content.get('evalue')}"
    elif isinstance(content, dict | list):
        for value in content.values() if isinstance(content, dict) else content:
            yield from _errors_in(value)


def _cell_faults(cell: NotebookNode) -> Iterator[str]:
    for error in _errors_in(cell.outputs):
        yield f"error in its output: {error}"
    written = "".join(output.text for output in cell.outputs if output.get("name") == "stderr")
    yield from (f"stderr: {line}" for line in written.splitlines() if line.strip())
    shown = {mime for output in cell.outputs for mime in output.get("data", {})}
    for name, mime in SHOWN_BY.items():
        if re.search(rf"\b{name}\(", cell.source) and mime not in shown:
            yield f"calls {name}, and no {mime} came out"
    if shown - ALLOWED_MIME:
        yield f"an output of an unexpected type: {', '.join(sorted(shown - ALLOWED_MIME))}"
    for place, output in enumerate(cell.outputs):
        if PLOTLY in output.get("data", {}):
            # its own description stands before the next figure
            rest = itertools.takewhile(lambda later: PLOTLY not in later.get("data", {}), cell.outputs[place + 1 :])
            yield from _figure_faults(output.data[PLOTLY], "".join(_of_type("text/html", rest)))


def _figure_faults(figure: dict[str, Any], description: str) -> Iterator[str]:
    for axis in ("xaxis", "yaxis"):
        told = figure["layout"].get(axis, {})
        if other := told.get("matches"):  # "x3": the panel below has the title
            told = figure["layout"].get(f"{axis}{other[1:]}", {})
        if not told.get("title", {}).get("text"):
            yield f"a figure's {axis} has no title"
    legend = [figure["layout"].get("legend", {}).get("title", {}).get("text", "")]
    legend += [trace.get("name", "") for trace in figure["data"]]
    if not any(word in name for name in legend for word in PROVENANCE):
        yield "a figure's legend does not say where its numbers come from"
    if "sendChartToCloud" not in figure.get("config", {}).get("modeBarButtonsToRemove", []):
        yield "a figure can be uploaded from its toolbar"
    if "Horizontal axis" not in description:
        yield "a figure has no description in words: pass it to show()"
    elif "<table" not in description:
        yield "a figure's description has no table"

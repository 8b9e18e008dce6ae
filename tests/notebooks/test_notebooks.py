"""The notebooks run from top to bottom and look as agreed; and the checks that say so notice when they do not."""

from __future__ import annotations

import json
from pathlib import Path

import nbformat
import papermill
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from notebook_checks import PLOTLY, execution_faults, format_faults, is_number, read_results

from labkit.hardware.labs import LABS
from labkit.project import binder_url, colab_url

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
SMOKE_TIMEOUT_S = 300
"""Ends a cell that hangs; no measure of speed, since a busy machine can be ten times slower than an idle one."""
MAY_BE_MISSING = {
    "time_to_target_s",
    "speedup_all_cores",
    "samples_ratio",
    "mean_of_finished_s",
    "median_s",
    "cost_usd",
}
"""Results that a run too short for its target does not have."""


def execute(path: Path, out: Path, **parameters) -> nbformat.NotebookNode:
    """Run a notebook under papermill, which must know every parameter."""
    unknown = set(parameters) - set(papermill.inspect_notebook(path))
    assert not unknown, f"{path.name} has no parameter {unknown}"
    return papermill.execute_notebook(
        path,
        out,
        parameters,
        kernel_name="python3",
        execution_timeout=SMOKE_TIMEOUT_S,
        progress_bar=False,
        cwd=out.parent,
    )


def test_the_doctor_lists_these_notebooks():
    assert [path.stem for path in NOTEBOOKS] == [lab.notebook for lab in LABS]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_as_committed(path):
    assert format_faults(path.read_text(encoding="utf-8"), f"notebooks/{path.name}") == []


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path, tmp_path):
    done = execute(path, tmp_path / path.name, profile="smoke", runs_dir=str(tmp_path / "runs"))
    assert execution_faults(done) == []
    assert list((tmp_path / "runs" / "notebooks").glob("*/run.json"))
    results = read_results(done)
    missing = {name for name, value in results.items() if value is None}
    assert missing <= MAY_BE_MISSING
    assert all(is_number(value) or isinstance(value, str) for value in results.values() if value is not None)


def test_an_unknown_parameter_is_refused(tmp_path):
    with pytest.raises(AssertionError, match="profil"):
        execute(NOTEBOOKS[0], tmp_path / "out.ipynb", profil="smoke")


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("import sys\nsys.exit(0)", "cell last: never ran"),
        (
            "from ipywidgets import Output\nhidden = Output()\nwith hidden:\n    1 / 0\nhidden",
            "error hidden in the widget state",
        ),
        ("import sys\nprint('careful', file=sys.stderr)", "cell fault: stderr: careful"),
    ],
    ids=["exit", "widget", "stderr"],
)
def test_what_papermill_lets_pass_is_noticed(source, fault, tmp_path):
    notebook = new_notebook(cells=[new_code_cell(source, id="fault"), new_code_cell("1 + 1", id="last")])
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(notebook, tmp_path / "planted.ipynb")
    assert fault in execution_faults(execute(tmp_path / "planted.ipynb", tmp_path / "out.ipynb"))


def shown_figure():
    layout = {"xaxis": {"title": {"text": "Time (s)"}}, "yaxis": {"title": {"text": "AUC"}}}
    config = {"modeBarButtonsToRemove": ["sendChartToCloud"]}
    figure = {"data": [{"name": "one-core · emulated"}], "layout": layout, "config": config}
    text = new_output("stream", name="stdout", text="Line chart. Horizontal axis: Time (s).")
    return [new_output("display_data", data={PLOTLY: figure}), text]


def ran(outputs):
    return new_notebook(cells=[new_code_cell("show(figure)", execution_count=1, outputs=outputs, id="a")])


def test_a_good_figure_passes():
    assert execution_faults(ran(shown_figure())) == []


@pytest.mark.parametrize(
    ("fault", "plant"),
    {
        "xaxis has no title": lambda figure, outputs: figure["layout"].pop("xaxis"),
        "yaxis has no title": lambda figure, outputs: figure["layout"]["yaxis"].pop("title"),
        "does not say where": lambda figure, outputs: figure["data"][0].update(name="one-core"),
        "can be uploaded": lambda figure, outputs: figure.pop("config"),
        "no description": lambda figure, outputs: outputs.pop(),
        "error in its output": lambda figure, outputs: outputs.append(
            new_output("error", ename="ValueError", evalue="", traceback=[])
        ),
    }.items(),
)
def test_a_fault_in_the_output_is_noticed(fault, plant):
    outputs = shown_figure()
    plant(outputs[0].data[PLOTLY], outputs)
    (found,) = execution_faults(ran(outputs))
    assert fault in found


def sound_notebook() -> nbformat.NotebookNode:
    badges = f"[![Binder](b)]({binder_url('notebooks/x.ipynb')}) [![Colab](c)]({colab_url('notebooks/x.ipynb')})"
    opening = f"# X\n\n{badges}\n\nAfter it you will be able to\n\n- count\n\n**Time:** 1 s\n**Prerequisites:** none"
    cells = [
        new_markdown_cell(opening),
        new_code_cell('profile = "standard"', metadata={"tags": ["parameters"]}),
        new_markdown_cell("## Count"),
        new_code_cell("print({})", metadata={"tags": ["results"]}),
        new_markdown_cell("## Recap\n\n- Counted.\n\n**Next:** y"),
    ]
    for number, cell in enumerate(cells):
        cell.id = f"cell-{number}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return new_notebook(cells=cells, metadata={"kernelspec": kernel})


def test_a_sound_notebook_passes():
    assert format_faults(nbformat.writes(sound_notebook()) + "\n", "notebooks/x.ipynb") == []


@pytest.mark.parametrize(
    ("fault", "plant"),
    {
        "no badge": lambda n: n.cells[0].update(source=n.cells[0].source.replace("mybinder", "elsewhere")),
        "does not say **Time:**": lambda n: n.cells[0].update(source=n.cells[0].source.replace("**Time:**", "")),
        "2 headings of level 1": lambda n: n.cells[2].update(source="# Count"),
        "skips a heading level": lambda n: n.cells[2].update(source="### Count"),
        "0 cells tagged parameters": lambda n: n.cells[1].metadata.update(tags=["parameter"]),
        "0 cells tagged results": lambda n: n.cells[3].pop("metadata") and n.cells[3].update(metadata={}),
        "no parameter profile": lambda n: n.cells[1].update(source='profile = "smoke"'),
        "imports *": lambda n: n.cells[3].update(source="from math import *"),
        "has 13 lines": lambda n: n.cells[3].update(source="\n".join(["1"] * 13)),
        "more than 5 lines": lambda n: [n.cells[i].update(source=n.cells[1].source + "\n1" * 5) for i in (1, 3)],
        "no prose before it": lambda n: n.cells.pop(2),
        "no recap": lambda n: n.cells.pop(),
        "has outputs": lambda n: n.cells[3].update(execution_count=1),
        "kernel is not python3": lambda n: n.metadata.pop("kernelspec"),
        "not nbformat 4.5": lambda n: n.update(nbformat_minor=6),
        "has widget state": lambda n: n.metadata.update(widgets={}),
    }.items(),
)
def test_a_fault_in_the_file_is_noticed(fault, plant):
    notebook = sound_notebook()
    plant(notebook)
    found = format_faults(
        json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n", "notebooks/x.ipynb"
    )
    assert any(fault in line for line in found)


def test_a_file_that_is_not_canonical_is_noticed():
    faults = format_faults(json.dumps(sound_notebook(), indent=2), "notebooks/x.ipynb")
    assert any("canonical" in fault for fault in faults)

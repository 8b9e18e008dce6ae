"""Authored notebooks are as agreed, and the check that says so notices each fault."""

from pathlib import Path

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from labkit.course.colab import COLAB_CELL
from labkit.course.labs import LABS
from labkit.course.lint import ANSWER, CHECK, faults
from labkit.course.notebook_file import authored, canonical, read_notebook
from labkit.project import binder_url, colab_url

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


@pytest.mark.parametrize("path", authored(NOTEBOOKS), ids=lambda path: path.stem)
def test_each_authored_notebook_is_as_agreed(path):
    assert faults(path) == []


def test_the_doctor_lists_these_notebooks():
    assert [path.stem for path in authored(NOTEBOOKS)] == [lab.notebook for lab in LABS]


EXERCISES = ("00.provenance", "00.cost", "00.test_looks")


def exercise(number: int) -> list:
    return [
        new_markdown_cell(f"### Exercise {number}"),
        new_code_cell(
            "### BEGIN SOLUTION\nanswer = 1\n### END SOLUTION",
            metadata={"nbgrader": {**ANSWER, "grade_id": f"answer-{number}"}},
        ),
        new_code_cell(
            f'check("{EXERCISES[number]}", answer)',
            metadata={"nbgrader": {**CHECK, "grade_id": f"check-{number}", "points": 1}},
        ),
    ]


def sound():
    """The smallest notebook without a fault."""
    address = "notebooks/90_x.ipynb"
    badges = f"[![Binder](b)]({binder_url(address)}) [![Colab](c)]({colab_url(address)})"
    opening = f"# X\n\n{badges}\n\nAfter it you will be able to\n\n- count\n\n**Time:** 1 s\n**Prerequisites:** none"
    cells = [
        new_markdown_cell(opening),
        new_code_cell(COLAB_CELL),
        new_markdown_cell("What you may change:"),
        new_code_cell('profile = "standard"', metadata={"tags": ["parameters"]}),
        new_markdown_cell("## Count"),
        new_code_cell('guess("a", 1)\nguess("b", 1)\nguess("c", 1)'),
        *(cell for number in range(3) for cell in exercise(number)),
        new_markdown_cell("And:"),
        new_code_cell('reveal("a", 1)\nreveal("b", 1)\nreveal("c", 1)'),
        new_markdown_cell("The numbers:"),
        new_code_cell("results()", metadata={"tags": ["results"]}),
        new_markdown_cell("## Recap\n\n- Counted.\n\n**Next:** y"),
    ]
    for number, cell in enumerate(cells):
        cell.id = f"cell-{number}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return new_notebook(cells=cells, metadata={"kernelspec": kernel})


def written(tmp_path, notebook) -> Path:
    path = tmp_path / "90_x.ipynb"
    path.write_text(canonical(notebook), encoding="utf-8")
    return path


def test_a_sound_notebook_passes(tmp_path):
    assert faults(written(tmp_path, sound())) == []


@pytest.mark.parametrize(
    ("fault", "plant"),
    {
        "no badge": lambda n: n.cells[0].update(source=n.cells[0].source.replace("mybinder", "elsewhere")),
        "does not say **Time:**": lambda n: n.cells[0].update(source=n.cells[0].source.replace("**Time:**", "")),
        "2 headings of level 1": lambda n: n.cells[4].update(source="# Count"),
        "skips a heading level": lambda n: n.cells[4].update(source="### Count"),
        "0 cells tagged parameters": lambda n: n.cells[3].metadata.update(tags=["parameter"]),
        "0 cells tagged results": lambda n: n.cells[-2].update(metadata={}),
        "no parameter profile": lambda n: n.cells[3].update(source='profile = "smoke"'),
        "imports * from math": lambda n: n.cells[5].update(source="from math import *"),
        "underlines the heading 'Count'": lambda n: n.cells[4].update(source="Count\n-----"),
        "ends in the figure px.line": lambda n: n.cells[5].update(source="px.line([1])"),
        "ends in the figure view.figure": lambda n: n.cells[5].update(source="view.figure"),
        "ends in the figure figure.update": lambda n: n.cells[5].update(source="figure.update_layout()"),
        "calls display()": lambda n: n.cells[5].update(source="display(1)"),
        "frame.plot() gives no": lambda n: n.cells[5].update(source="frame.plot()"),
        "never reveals the guess 'a'": lambda n: n.cells[16].update(source="1"),
        "as a line of its own": lambda n: n.cells[5].update(source='guess("a", 1); guess("b", 1)'),
        "'99.no', which is no exercise": lambda n: n.cells[8].update(source='check("99.no", answer)'),
        "grade_id 'check-0'": lambda n: n.cells[11].metadata.nbgrader.update(grade_id="check-0"),
        "has 13 lines": lambda n: n.cells[5].update(source="\n".join(["1"] * 13)),
        "more than 5 lines": lambda n: [
            c.update(source=c.source + "\n1" * 6) for c in n.cells if c.cell_type == "code"
        ],
        "no prose before it": lambda n: n.cells.pop(4),
        "no recap": lambda n: n.cells.pop(),
        "has outputs": lambda n: n.cells[5].update(execution_count=1),
        "kernel is not python3": lambda n: n.metadata.pop("kernelspec"),
        "has widget state": lambda n: n.metadata.update(widgets={}),
        "second cell is not": lambda n: n.cells[1].update(source="import sys"),
        "figure.show() gives no description": lambda n: n.cells[5].update(source="figure.show()"),
        "is no Python": lambda n: n.cells[5].update(source="1 +"),
        "without a description": lambda n: n.cells[5].update(source="figure_time_to_accuracy(runs)"),
        "has 2 guesses": lambda n: n.cells[5].update(source='guess("a", 1)\nguess("b", 1)'),
        "has 2 exercises": lambda n: n.cells.__delitem__(slice(6, 9)),
        "no answer that nbgrader clears": lambda n: n.cells[7].update(source="answer = 1"),
        "not that of a check": lambda n: n.cells[8].metadata.nbgrader.update(points=0),
        "checks nothing": lambda n: n.cells[8].update(source="answer"),
    }.items(),
)
def test_a_fault_is_noticed(tmp_path, fault, plant):
    notebook = sound()
    plant(notebook)
    found = faults(written(tmp_path, notebook))
    assert any(fault in line for line in found), found


def test_a_file_that_is_not_canonical_is_noticed(tmp_path):
    path = written(tmp_path, sound())
    path.write_text(path.read_text().replace('\n "cells"', '\n  "cells"'))
    assert any("canonical" in fault for fault in faults(path))
    path.write_text(canonical(read_notebook(path)))
    assert faults(path) == []

"""The smallest notebook that is as agreed; it runs, too."""

from __future__ import annotations

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from labkit.course.lint import ANSWER, CHECK, COLAB_CELL
from labkit.project import binder_url, colab_url

NAME = "90_x"
EXERCISES = {"00.provenance": '"emulated"', "10.pairs": "351", "20.outputs": "12"}
"""Exercises and their answers."""


def sound_notebook() -> NotebookNode:
    address = f"notebooks/{NAME}.ipynb"
    badges = f"[![Binder](b)]({binder_url(address)}) [![Colab](c)]({colab_url(address)})"
    opening = f"# X\n\n{badges}\n\nAfter it you will be able to\n\n- count\n\n**Time:** 1 s\n**Prerequisites:** none"
    cells = [
        new_markdown_cell(opening),
        new_code_cell(COLAB_CELL),
        new_markdown_cell("What you may change:"),
        new_code_cell('profile = "standard"', metadata={"tags": ["parameters"]}),
        new_markdown_cell("## Count"),
        new_code_cell('guess("a", 1)\nguess("b", 1)\nguess("c", 1)'),
    ]
    for name, answer in EXERCISES.items():
        word = name.partition(".")[2]
        graded = {**CHECK, "grade_id": f"check-{word}", "points": 1}
        cells += [
            new_markdown_cell(f"### Exercise {name}"),
            new_code_cell(
                f"### BEGIN SOLUTION\nanswer = {answer}\n### END SOLUTION",
                metadata={"nbgrader": {**ANSWER, "grade_id": f"answer-{word}"}},
            ),
            new_code_cell(f'check("{name}", answer)', metadata={"nbgrader": graded}),
        ]
    cells += [
        new_markdown_cell("And:"),
        new_code_cell('reveal("a", 1)\nreveal("b", 1)\nreveal("c", 1)'),
        new_markdown_cell("The numbers:"),
        new_code_cell("results(one=(1, 0, 2))", metadata={"tags": ["results"]}),
        new_markdown_cell("## Recap\n\n- Counted.\n\n**Next:** y"),
    ]
    cells[5].source = "from labkit.course import check, guess, results, reveal\n\n" + cells[5].source
    for number, cell in enumerate(cells):
        cell.id = f"cell-{number}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return new_notebook(cells=cells, metadata={"kernelspec": kernel, "language_info": {"name": "python"}})

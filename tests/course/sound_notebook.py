"""The smallest notebook that is as agreed; it runs, too."""

from __future__ import annotations

import inspect

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from labkit.project import binder_url, colab_url
from labkit_course.checks import all_exercises
from labkit_course.explanation import Explanation
from labkit_course.lint import ANSWER, CHECK, COLAB_CELL, WRITTEN

NAME = "90_x"
CODE = ("10.interaction", "20.collapse")
EXPLAINED = next(name for name, exercise in all_exercises().items() if isinstance(exercise, Explanation))


def solved(name: str) -> str:
    """The cell of an exercise, with nbgrader's markers around the body."""
    first, *body = inspect.getsource(all_exercises()[name].reference).rstrip().splitlines()
    marked = [first, "    ### BEGIN SOLUTION", *body, "    ### END SOLUTION"]
    return "\n".join(["import torch", "from torch import Tensor", "", "", *marked])


def marked(answer: str, call: str) -> str:
    return f"### BEGIN SOLUTION\nanswer = {answer}\n### END SOLUTION\n{call}"


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
    for name in CODE:
        word = name.partition(".")[2]
        graded = {**CHECK, "grade_id": f"check-{word}", "points": 1}
        cells += [
            new_markdown_cell(f"### Exercise {name}"),
            new_code_cell(solved(name), metadata={"nbgrader": {**ANSWER, "grade_id": f"answer-{word}"}}),
            new_code_cell(f'check("{name}", {word})', metadata={"nbgrader": graded}),
        ]
    by_hand = {
        "explain": marked(f'model_answer("{EXPLAINED}")', f'explain("{EXPLAINED}", answer)'),
        "claim": marked('"holds here", "four bytes a number, and many rows"', 'claim("A4", "102 GB", answer)'),
    }
    for word, source in by_hand.items():
        written = {**WRITTEN, "grade_id": word, "points": 2}
        cells += [new_markdown_cell("In words:"), new_code_cell(source, metadata={"nbgrader": written})]
    cells += [
        new_markdown_cell("And:"),
        new_code_cell('reveal("a", 1)\nreveal("b", 1)\nreveal("c", 1)'),
        new_markdown_cell("The numbers:"),
        new_code_cell("results(one=(1, 0, 2))", metadata={"tags": ["results"]}),
        new_markdown_cell("## Recap\n\n- Counted.\n\n**Next:** y"),
    ]
    imports = "check, claim, explain, guess, model_answer, results, reveal"
    cells[5].source = f"from labkit_course import {imports}\n\n" + cells[5].source
    for number, cell in enumerate(cells):
        cell.id = f"cell-{number}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return new_notebook(cells=cells, metadata={"kernelspec": kernel, "language_info": {"name": "python"}})

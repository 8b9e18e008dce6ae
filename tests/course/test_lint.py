"""Authored notebooks are as agreed, and the check that says so notices each fault."""

from pathlib import Path

import pytest
from sound_notebook import NAME, sound_notebook

from labkit_course.labs import LABS
from labkit_course.lint import faults
from labkit_course.notebook_file import authored, canonical

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


def test_the_doctor_lists_the_authored_notebooks():
    assert [path.stem for path in authored(NOTEBOOKS)] == [lab.notebook for lab in LABS]


def faults_of(tmp_path, notebook) -> list[str]:
    path = tmp_path / f"{NAME}.ipynb"
    path.write_text(canonical(notebook), encoding="utf-8")
    return faults(path)


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
        'never reveals what guess("a", 1)': lambda n: n.cells[17].update(source="1"),
        "as a line of its own": lambda n: n.cells[5].update(source='guess("a", 1); guess("b", 1)'),
        "has 13 lines": lambda n: n.cells[5].update(source="\n".join(["1"] * 13)),
        "more than 5 lines": lambda n: [
            c.update(source=c.source + "\n1" * 6) for c in n.cells if c.cell_type == "code"
        ],
        "no prose before it": lambda n: n.cells.pop(4),
        "no recap": lambda n: n.cells.pop(),
        "has outputs": lambda n: n.cells[5].update(execution_count=1),
        "not written as": lambda n: n.metadata.pop("kernelspec"),
        "not the one that installs on Colab": lambda n: n.cells[1].update(source="import sys"),
        "has 2 guesses": lambda n: n.cells[5].update(source='guess("a", 1)\nguess("b", 1)'),
        "has 1 cells with check": lambda n: n.cells.__delitem__(slice(6, 9)),
        "has 0 cells with claim": lambda n: n.cells.__delitem__(slice(14, 16)),
        "is no answer that nbgrader clears": lambda n: n.cells[7].update(source="answer = 1"),
        "has no answer that nbgrader clears": lambda n: n.cells[13].update(source='explain("10.x", "So.")'),
        "not that of a check": lambda n: n.cells[8].metadata.nbgrader.update(points=0),
        "not that of a claim": lambda n: n.cells[15].metadata.nbgrader.update(locked=True),
        "is not the reference of 10.interaction": lambda n: n.cells[7].update(
            source=n.cells[7].source.replace("offset=-1", "offset=0")
        ),
        "asks 10.inter, and there is no such": lambda n: n.cells[8].update(source='check("10.inter", interaction)'),
        "has no code cell": lambda n: n.cells.__delitem__(slice(1, None)),
    }.items(),
)
def test_a_fault_is_noticed(tmp_path, fault, plant):
    notebook = sound_notebook()
    assert faults_of(tmp_path, notebook) == []
    plant(notebook)
    found = faults_of(tmp_path, notebook)
    assert any(fault in line for line in found), found

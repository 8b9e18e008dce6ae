"""Labs are as agreed, and the check that says so notices each fault."""

import pytest
from sound_lab import NAME, sound_notebook

from labkit_course.gate import faults
from labkit_course.lab import LABS, sources


def test_the_doctor_lists_the_labs():
    assert [path.stem for path in sources()] == [lab.notebook for lab in LABS]


@pytest.mark.parametrize(
    ("fault", "plant"),
    {
        "does not say **Time:**": lambda n: n.cells[0].update(source=n.cells[0].source.replace("**Time:**", "")),
        "2 headings of level 1": lambda n: n.cells[3].update(source="# Count"),
        "skips a heading level": lambda n: n.cells[3].update(source="### Count"),
        "0 cells tagged parameters": lambda n: n.cells[2].metadata.update(tags=["parameter"]),
        "0 cells tagged results": lambda n: n.cells[-2].update(metadata={}),
        "no parameter profile": lambda n: n.cells[2].update(source='profile = "smoke"'),
        'never reveals what guess("a", 1)': lambda n: n.cells[16].update(source="1"),
        "as a line of its own": lambda n: n.cells[4].update(source='guess("a", 1); guess("b", 1)'),
        "has 13 lines": lambda n: n.cells[4].update(source="\n".join(["1"] * 13)),
        "more than 6 lines": lambda n: [
            c.update(source=c.source + "\n1" * 7) for c in n.cells if c.cell_type == "code"
        ],
        "no prose before it": lambda n: n.cells.pop(3),
        "no recap": lambda n: n.cells.pop(),
        "has 2 guesses": lambda n: n.cells[4].update(source='guess("a", 1)\nguess("b", 1)'),
        "has 1 cells with check": lambda n: n.cells.__delitem__(slice(5, 8)),
        "has 0 cells with claim": lambda n: n.cells.__delitem__(slice(13, 15)),
        "cell answer-10-interaction: is no answer": lambda n: n.cells[6].update(source="answer = 1"),
        "cell by-hand: is no answer": lambda n: n.cells[12].update(source='explain("10.x", "So.")'),
        "has no points": lambda n: n.cells[7].metadata.nbgrader.update(points=0),
        "another kind than its call, claim": lambda n: n.cells[14].metadata.nbgrader.update(solution=False),
        "asks 10.inter, and there is no such": lambda n: n.cells[7].update(source='check("10.inter", interaction)'),
        "'cp is a word' begins as a command": lambda n: n.cells[16].update(
            source=n.cells[16].source + "\ncp is a word"
        ),
        "has no code cell": lambda n: n.cells.__delitem__(slice(1, None)),
    }.items(),
)
def test_a_fault_is_noticed(tmp_path, fault, plant):
    notebook = sound_notebook(tmp_path)
    assert faults(notebook, NAME) == []
    plant(notebook)
    found = faults(notebook, NAME)
    assert any(fault in line for line in found), found

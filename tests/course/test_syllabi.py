"""What instructors are told is so: syllabi use every notebook, "Next" runs through them, and the points go to work."""

import re
from collections import Counter
from pathlib import Path

import pytest

from labkit_course.exercise import WrittenExercise
from labkit_course.lab import LABS, all_exercises
from labkit_course.notebook_file import SOLUTIONS, code_cells, read_notebook

REPOSITORY = Path(__file__).parents[2]
NOTEBOOKS = REPOSITORY / "notebooks"
NAMES = [lab.notebook for lab in LABS]
SOURCES = {name: read_notebook(NOTEBOOKS / SOLUTIONS / f"{name}.ipynb") for name in NAMES}


def student_lines(name: str) -> int:
    """Lines between the markers of a solution, which a student writes."""
    source = "\n".join(cell.source for cell in code_cells(SOURCES[name]))
    solutions = re.findall(r"### BEGIN SOLUTION\n(.*?)### END SOLUTION", source, re.DOTALL)
    return sum(bool(line.strip()) for solution in solutions for line in solution.splitlines())


def points(name: str) -> Counter[str]:
    """Points of a notebook by what they are for: code, numbers, explain or claim."""
    found: Counter[str] = Counter()
    for cell in code_cells(SOURCES[name]):
        graded = cell.metadata.get("nbgrader", {})
        if graded.get("grade"):
            kind, exercise = re.findall(r'^(check|explain|claim)\("([\w.]+)"', cell.source, re.MULTILINE)[0]
            if kind == "check":
                kind = "code" if isinstance(all_exercises()[exercise], WrittenExercise) else "numbers"
            found[kind] += graded["points"]
    return found


def row(name: str) -> str:
    """Of a notebook, in the table of docs/instructors.md."""
    minutes = re.search(r"\*\*Time:\*\* (\d+) minutes", SOURCES[name].cells[0].source)[1]
    source, found = "\n".join(cell.source for cell in code_cells(SOURCES[name])), points(name)
    taken = sorted(each for each in set(re.findall(r'mine\("(\d\d\.\w+)"\)', source)) if each[:2] != name[:2])
    counts = [student_lines(name), *(found[kind] for kind in ("code", "numbers", "explain", "claim"))]
    cells = [f"[{name}](../notebooks/{name}.ipynb)", minutes, *map(str, counts), ", ".join(taken) or "–"]
    return f"| {' | '.join(cells)} |"


@pytest.mark.parametrize("name", NAMES)
def test_instructors_read_minutes_lines_and_points_as_they_are(name):
    assert row(name) in (REPOSITORY / "docs" / "instructors.md").read_text(encoding="utf-8").splitlines()


def test_the_syllabi_together_use_every_notebook():
    pages = sorted((NOTEBOOKS / "syllabi").glob("*.md"))
    targets = {(page, target) for page in pages for target in re.findall(r"\]\(([^)#]+)", page.read_text("utf-8"))}
    assert [target for page, target in targets if not (page.parent / target).exists()] == []
    assert {Path(target).stem for _, target in targets if target.endswith(".ipynb")} == set(NAMES)
    assert len(pages) == 3


def test_next_leads_through_all_notebooks_in_order():
    leads = [re.search(r"\*\*Next:\*\*.*?\]\((\w+)\.ipynb\)", SOURCES[name].cells[-1].source)[1] for name in NAMES]
    assert leads[:-1] == NAMES[1:]
    assert leads[-1] in NAMES


def test_most_points_are_for_tested_code_or_graded_text():
    found = sum(map(points, NAMES), Counter())
    assert (found.total() - found["numbers"]) / found.total() >= 0.6


def test_students_write_at_least_600_lines():
    assert sum(map(student_lines, NAMES)) >= 600

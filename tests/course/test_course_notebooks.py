"""Every notebook of the course runs: the authored ones to their end, the exercises to the first unanswered one."""

from pathlib import Path

import pytest

from labkit.course.notebook_file import authored, read_notebook
from labkit.course.runner import run_notebooks
from labkit.course.verdict import read_results

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_authored_notebooks_run_two_at_a_time(tmp_path):
    executed = run_notebooks(authored(NOTEBOOKS), tmp_path, jobs=2)
    assert {each.source.stem: each.faults for each in executed if not each.passed} == {}
    assert all(read_results(read_notebook(each.out)) for each in executed)
    assert all(each.figures for each in executed)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_exercises_stop_at_the_first_one_and_name_it(tmp_path):
    executed = run_notebooks([NOTEBOOKS / path.name for path in authored(NOTEBOOKS)], tmp_path, jobs=2)
    assert {each.source.stem: each.faults for each in executed if not each.passed} == {}
    assert all(f"Exercise {each.source.stem[:2]}." in each.note for each in executed)

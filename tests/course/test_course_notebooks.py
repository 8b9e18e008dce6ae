"""Every authored notebook runs to its end, once, and has its page."""

from pathlib import Path

import pytest

from labkit.course.notebook_file import authored
from labkit.course.runner import run_notebooks
from labkit.course.site import build_site

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


@pytest.mark.quiet
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_authored_notebooks_run_two_at_a_time_and_have_their_pages(tmp_path):
    executed = run_notebooks(authored(NOTEBOOKS), tmp_path, jobs=2)
    assert {each.source.stem: each.faults for each in executed if each.faults} == {}
    assert [each.source.stem for each in executed if not each.figures] == ["34_clinics"]
    index = build_site(tmp_path, tmp_path / "site")
    for each in executed:
        assert (index.parent / f"{each.out.stem}.html").read_text(encoding="utf-8").count("<h1") == 1

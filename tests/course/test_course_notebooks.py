"""Every notebook of the course runs: the authored ones to their end, the exercises to the first unanswered one."""

from importlib.resources import files
from pathlib import Path

import pytest

from labkit.course.notebook_file import authored, read_notebook
from labkit.course.runner import run_notebooks
from labkit.course.site import build_site
from labkit.course.verdict import read_results

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
SERIOUS = """axe.run(document).then((result) => result.violations
  .filter((each) => ['serious', 'critical'].includes(each.impact)).map((each) => [each.id, each.nodes[0].html]))"""


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """The authored notebooks, executed two at a time."""
    return run_notebooks(authored(NOTEBOOKS), tmp_path_factory.mktemp("course"), jobs=2)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_authored_notebooks_run_two_at_a_time(executed):
    assert {each.source.stem: each.faults for each in executed if not each.passed} == {}
    assert all(read_results(read_notebook(each.out)) for each in executed)
    assert all(each.figures for each in executed)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_their_site_has_every_page_without_a_serious_fault_for_a_screen_reader(executed, browser, tmp_path):
    build_site(executed[0].out.parent, tmp_path)
    axe = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
    for name in ("index", *(each.out.stem for each in executed)):
        page = browser.new_page(offline=True)
        page.goto((tmp_path / f"{name}.html").as_uri())
        page.evaluate(axe)
        assert page.evaluate(SERIOUS) == [], name
        page.close()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_exercises_stop_at_the_first_one_and_name_it(tmp_path):
    executed = run_notebooks([NOTEBOOKS / path.name for path in authored(NOTEBOOKS)], tmp_path, jobs=2)
    assert {each.source.stem: each.faults for each in executed if not each.passed} == {}
    assert all(f"Exercise {each.source.stem[:2]}." in each.note for each in executed)

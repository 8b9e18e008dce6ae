"""Every authored notebook runs to its end, once, and the site of them can be read."""

from importlib.resources import files
from pathlib import Path

import pytest

from labkit.course.notebook_file import authored
from labkit.course.runner import run_notebooks
from labkit.course.site import build_site

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
SERIOUS = """axe.run(document).then((result) => result.violations
  .filter((each) => ['serious', 'critical'].includes(each.impact)).map((each) => [each.id, each.nodes[0].html]))"""


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    return run_notebooks(authored(NOTEBOOKS), tmp_path_factory.mktemp("course"), jobs=2)


@pytest.mark.quiet
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_authored_notebooks_run_two_at_a_time(executed):
    assert {each.source.stem: each.faults for each in executed if each.faults} == {}
    assert all(each.figures for each in executed)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_their_site_has_every_page_without_a_serious_fault_for_a_screen_reader(executed, browser, tmp_path):
    build_site(executed[0].out.parent, tmp_path)
    axe = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
    page = browser.new_context(offline=True).new_page()
    page.route("**/plotly.min.js", lambda route: route.abort())  # drawn figures are test_site.py's, and take long
    for name in ("index", *(each.out.stem for each in executed)):
        page.goto((tmp_path / f"{name}.html").as_uri())
        page.evaluate(axe)
        assert page.evaluate(SERIOUS) == [], name

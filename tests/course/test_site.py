"""The site: what is on its pages, and that a real browser shows it, offline."""

import re
from importlib.resources import files

import nbformat
import plotly.graph_objects as go
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from labkit.cli import main
from labkit.errors import UserError
from labkit.plots import PALETTES, describe
from labkit.plots.theme import INK
from labkit_course.progress import RESULTS
from labkit_course.runner import PLOTLY
from labkit_course.site import build_site


def executed(title: str, following: str) -> nbformat.NotebookNode:
    """An executed notebook with every kind of output."""
    layout = {"xaxis": {"title": {"text": "Time (s)"}}, "yaxis": {"title": {"text": "AUC"}}}
    layout["shapes"] = [{"type": "line", "x0": 0, "x1": 1, "y0": 0, "y1": 1, "line": {"color": INK["labkit_light"]}}]
    black = {"color": PALETTES["labkit_light"][-1]}
    data = [{"type": "scatter", "x": [1, 2], "y": [0.5, 0.7], "name": "measured", "line": black}]
    frame = '<table border="1"><thead><tr style="text-align: right;"><th>a</th></tr></thead><tr><td>1</td></tr></table>'
    shown = (
        {PLOTLY: {"data": data, "layout": layout}},
        describe(go.Figure(data))._repr_mimebundle_(),
        {"text/html": frame, "text/plain": "a"},
        {RESULTS: {}, "text/plain": "auc = 0.7"},
    )
    outputs = [
        new_output("stream", name="stdout", text="plain <b>text</b>\n"),
        *(new_output("display_data", data=each) for each in shown),
        new_output("error", ename="ValueError", evalue="odd", traceback=["\x1b[31mValueError\x1b[0m: odd"]),
    ]
    badge = "[![Open in Binder](https://mybinder.org/badge_logo.svg)](https://mybinder.org/v2/gh/x)"
    cells = [
        new_markdown_cell(f"# {title}\n\n{badge}\n\nYou will be able to\n\n- **count** sheep"),
        new_markdown_cell("## Counting\n\nA *zebra* is no sheep.\n\n## Kaplan–Meier & co"),
        new_code_cell("print('</script>', 1 in [1.5])  # no", execution_count=1, outputs=outputs),
        new_markdown_cell(f"## Recap\n\n- Counted.\n\n**Next:** [on]({following}.ipynb), or [not made](77_x.ipynb)"),
    ]
    return new_notebook(cells=cells, metadata={"papermill": {"end_time": "2026-01-02T03:04:05", "duration": 7.0}})


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    for stem, title, following in (("00_one", "One", "10_two"), ("10_two", "Two", "00_one")):
        nbformat.write(executed(title, following), folder / f"{stem}.ipynb")
    assert main(["course", "site", "--executed", str(folder), "--out", str(folder / "out")]) == 0
    with pytest.raises(UserError, match="labkit course run --out"):
        build_site(folder / "out", folder / "none")
    return folder / "out"


def test_a_page_has_every_output_and_loads_nothing_from_the_network(site):
    page = (site / "00_one.html").read_text(encoding="utf-8")
    for words in (
        "plain &lt;b&gt;text&lt;/b&gt;", '"Time (s)"', "<th>a</th>", "auc = 0.7", "ansi-red-fg",
        'href="10_two.html"', "not made",
        "<details><summary>The figure as text and as a table",
    ):  # fmt: skip
        assert words in page
    assert 'href="77' not in page and "badge" not in page
    for path in site.glob("*.html"):
        assert not re.findall(r'(?:src|href)="https?://', path.read_text(encoding="utf-8")), path
    index = (site / "index.html").read_text(encoding="utf-8")
    assert index.index('<a href="00_one.html">One</a>') < index.index('<a href="10_two.html">Two</a>')


def test_a_browser_draws_the_figure_and_axe_finds_no_serious_fault(browser, site):
    axe = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
    page, problems = browser.new_context(offline=True).new_page(), []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("requestfailed", lambda request: problems.append(request.url))
    for name in ("index", "00_one"):
        page.goto((site / f"{name}.html").as_uri())
        page.evaluate(axe)
        found = page.evaluate("axe.run(document).then((result) => result.violations)")
        serious = [(each["id"], each["nodes"]) for each in found if each["impact"] in ("serious", "critical")]
        assert serious == [], name
    page.wait_for_selector(".plotly-graph-div .main-svg")
    assert problems == []
    page.context.close()

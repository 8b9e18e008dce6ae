"""What the page's script does, in a real browser, offline."""

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from made_up import made_up, together

from labkit.plots import PALETTES, seconds_text
from labkit.plots.theme import BACKGROUNDS
from labkit.report.page import build_page
from labkit.report.summary_text import OF_TARGET, summary_cells, target_cells
from labkit.tta import crossings, summary, survival, target_columns


def synthetic(job, budget, every_s, lengths, tier):
    """Noisy runs of a job, of which the short ones fail; some values lie exactly on a position of the slider."""
    generator, curves = np.random.default_rng(len(budget)), []
    for length in lengths:
        share, noise = 1 - np.exp(-np.arange(1, length + 1) / 8), generator.normal(0, 0.01, length)
        value = 0.5 + 0.3 * share + noise if job == "dlrm" else np.exp(-4 * share + 5 * noise)
        curves.append(value.round(3))
    failed = [length < 20 for length in lengths]
    return made_up(
        curves,
        job=job,
        budget=budget,
        tier=tier,
        **({"metric": "auc", "target": 0.75} if job == "dlrm" else {"metric": "cer", "target": 0.05}),
        every_s=every_s * (1 + 0.1 * np.arange(len(lengths))),
        unreached=np.where(failed, "failed", "censored"),
        status=np.where(failed, "failed", "done"),
        provenance="emulated" if budget == "one-core" else "measured",
    )


LENGTHS = (30, 25, 9, 30, 12, 28, 0, 29, 22, 30, 8, 27, 30, 26, 30)
CURVES, RUNS = together(
    synthetic("dlrm", "one-core", 2.5, (30, 30), "cloud-cpu-1"),
    synthetic("dlrm", "all-cores", 1.4, (30, 30), "cloud-cpu-2"),
    synthetic("speech", "one-core", 2.5, (30, 30), "cloud-cpu-1"),
    synthetic("speech", "all-cores", 1.4, (30, 30), "cloud-cpu-2"),
    synthetic("dlrm", "gpu", 0.24, LENGTHS, None),
)


@pytest.fixture(scope="module")
def loaded(browser, tmp_path_factory):
    """The page, opened once from its file (plotly takes seconds to start), and what went wrong in it."""
    file = tmp_path_factory.mktemp("page") / "index.html"
    file.write_text(build_page(CURVES, RUNS, {"Machine": "synthetic"}), encoding="utf-8")
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light", offline=True)
    page = context.new_page()
    faults = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("request", lambda request: faults.append(request.url) if request.url.startswith("http") else None)
    page.goto(file.as_uri())
    page.wait_for_selector("#job1-targets .main-svg")
    yield page, faults
    context.close()


@pytest.fixture
def page(loaded):
    """The page as it opens at 1280 px; the test fails on any script error or request to elsewhere."""
    page, faults = loaded
    page.set_viewport_size({"width": 1280, "height": 900})
    page.emulate_media(color_scheme="light")
    page.evaluate("() => { delete document.documentElement.dataset.theme; }")
    page.locator('input[name="job0-x"][value="wall_s"]').check()
    for job in ("job0", "job1"):
        page.locator(f"#{job}-reset").click()
    settle(page)
    yield page
    assert faults == []


def settle(page):
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def shown(page, job):
    """The table's text, a list a row."""
    rows = page.locator(f'tr[id^="{job}-row-"]').all()
    return [[" ".join(cell.split()) for cell in row.locator("th, td").all_inner_texts()] for row in rows]


def target_of(page, job):
    """The target at which the slider stands."""
    grid = page.evaluate(f"JSON.parse(document.getElementById('report-data').textContent).jobs[{job[-1]}].grid")
    return grid[int(page.locator(f"#{job}-target").input_value())]


def of_job(job):
    return [frame[frame["job"] == ("dlrm", "speech")[int(job[-1])]] for frame in (CURVES, RUNS)]


def expected(job, target):
    return [list(map(str, summary_cells(row))) for row in summary(*of_job(job), target).to_dict("records")]


def test_at_every_slider_position_tried_the_table_is_that_of_the_analysis(page):
    for job in ("job0", "job1"):
        slider, seen = page.locator(f"#{job}-target"), set()
        box = slider.bounding_box()
        for share in (0.05, 0.3, 0.5, 0.7, 0.95):
            slider.click(position={"x": share * box["width"], "y": box["height"] / 2})
            settle(page)
            target = target_of(page, job)
            assert shown(page, job) == expected(job, target), f"target {target}"
            seen.add(str(shown(page, job)))
        assert len(seen) > 3, "the positions tried should tell different stories"


def test_the_table_follows_the_clock_of_the_chosen_axis(page):
    page.locator('input[name="job0-x"][value="train_s"]').check()
    settle(page)
    curves, runs = of_job("job0")
    times = {x: survival(curves, runs, 0.75, x=x) for x in ("wall_s", "train_s", "samples")}
    cells = [list(map(str, target_cells(row))) for row in target_columns(times, runs, "train_s").to_dict("records")]
    assert [[row[place] for place in OF_TARGET] for row in shown(page, "job0")] == cells
    page.locator('input[name="job0-x"][value="cost_usd"]').check()
    settle(page)
    assert shown(page, "job0") == expected("job0", 0.75), "of the wall"
    assert "US$" in page.evaluate("document.getElementById('job0-curves').layout.xaxis.title.text")
    assert "US$" in page.evaluate("document.getElementById('job0-targets').layout.yaxis.title.text")


def test_the_keyboard_moves_the_target_line_the_markers_and_the_words(page):
    plot = "document.getElementById('job0-curves')"
    rings = f"{plot}.data.filter(t => t.meta.kind === 'reached').map(t => [...t.y])"
    before, marks = page.evaluate(f"{plot}.layout.shapes[0].y0"), page.evaluate(rings)
    page.locator("#job0-target").focus()
    for _ in range(8):
        page.keyboard.press("ArrowLeft")
    settle(page)
    target, moved = target_of(page, "job0"), page.evaluate(rings)
    assert page.evaluate(f"{plot}.layout.shapes[0].y0") == target < before
    assert page.evaluate("document.getElementById('job0-targets').layout.shapes[0].x0") == target
    assert moved != marks and all(value >= target for values in moved for value in values)
    assert page.locator("#job0-output").inner_text() == f"AUC {target:.6g}"
    for name, attribute in (("target", "aria-valuetext"), ("curves", "aria-label")):
        assert f"AUC {target:.6g}" in page.locator(f"#job0-{name}").get_attribute(attribute)
    page.locator("#job0-reset").click()
    settle(page)
    assert page.evaluate(f"{plot}.layout.shapes[0].y0") == 0.75


def test_the_list_of_runs_follows_and_marks_censored_ones(page):
    page.locator("#job0 details summary").click()
    page.locator("#job0-target").press("End")
    settle(page)
    text = page.locator("#job0 details").inner_text()
    assert "censored at" in text and "failed before the first evaluation" in text
    page.locator("#job0-target").press("Home")
    settle(page)
    runs = RUNS[RUNS["job"] == "dlrm"]
    hits = crossings(CURVES[CURVES["job"] == "dlrm"], runs, target_of(page, "job0")).set_index("run")
    for run, hit in hits.iloc[::3].iterrows():
        row = page.locator("#job0 .runs tr").filter(has=page.get_by_text(run, exact=True))
        if hit["reached"]:
            assert row.locator("td").all_inner_texts()[-2] == seconds_text(hit["time_to_target_s"])


def test_the_dark_background_follows_the_system_and_the_button(page):
    look = """[
      getComputedStyle(document.body).backgroundColor,
      document.getElementById('job0-curves')._fullLayout.paper_bgcolor,
      document.getElementById('job0-curves').data.find(t => t.meta.kind === 'run').line.color,
    ]"""
    light = page.evaluate(look)
    page.emulate_media(color_scheme="dark")
    settle(page)
    dark = page.evaluate(look)
    assert all(one != other for one, other in zip(light, dark, strict=True))
    assert dark[1:] == [BACKGROUNDS["labkit_dark"], PALETTES["labkit_dark"][0]]
    page.locator("#theme").click()
    settle(page)
    assert page.evaluate(look) == light


def test_nothing_is_wrong_by_the_rules_of_accessibility_nothing_is_uploaded_and_a_narrow_window_is_enough(page):
    found = Axe().run(page, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21aa"]})
    assert found.violations_count == 0, found.generate_report()
    assert [len(figure.get_attribute("aria-label")) > 100 for figure in page.locator(".plot").all()] == [True] * 4
    names = page.locator(".modebar-btn").evaluate_all("nodes => nodes.map(node => node.getAttribute('aria-label'))")
    assert "Reset axes" in names and not any("hare" in name or "loud" in name for name in names)
    page.set_viewport_size({"width": 320, "height": 800})
    # the figures follow a moment after the window, as plotly debounces
    page.wait_for_function("document.documentElement.scrollWidth <= 320", timeout=10_000)


def test_names_from_runs_stay_text_in_the_browser(browser, tmp_path):
    evil = '</script><img src=x onerror="window.broken=1"><b>'
    curves, runs = made_up([[0.6, 0.8], [0.5, 0.9]], budget=evil, job=evil, disturbed=evil)
    file = tmp_path / "evil.html"
    file.write_text(build_page(curves, runs, {}), encoding="utf-8")
    page = browser.new_page()
    page.goto(file.as_uri())
    page.wait_for_selector("#job0-targets .main-svg")
    assert page.evaluate("window.broken === undefined && document.querySelectorAll('main img').length") == 0
    assert evil in page.locator("#job0-row-0 th").inner_text()
    page.close()

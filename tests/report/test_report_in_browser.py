"""What the page's script does, in a real browser, offline."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from labkit.report.page import build_page
from labkit.report.table import summary_cells
from labkit.tta import summary


def synthetic():
    """Noisy synthetic runs of two jobs: two seeds on two budgets, and on a third fifteen, of which some fail.

    Values have three decimals, so that some lie exactly on a position of the slider.
    """
    generator = np.random.default_rng(0)
    rows, frames = [], []

    def add(job, budget, seed, speed, length, tier, status="done"):
        metric = {"dlrm": "auc", "speech": "cer"}[job]
        samples = np.arange(1, length + 1) * 1000.0
        share = 1 - np.exp(-samples / 8000)
        noise = generator.normal(0, 0.01, length)
        value = 0.5 + 0.3 * share + noise if metric == "auc" else np.exp(-4 * share + 5 * noise)
        value = value.round(3)
        run = f"{job}-{budget}-{seed}"
        shared = {"run": run, "job": job, "budget": budget, "seed": seed, "tier": tier, "metric": metric}
        shared["provenance"] = "emulated" if budget == "one-core" else "measured"
        rows.append(
            shared
            | {
                "higher_is_better": metric == "auc",
                "target": 0.75 if metric == "auc" else 0.05,
                "status": status,
                "disturbed": "",
                "unreached": "failed" if status == "failed" else "censored",
                "confirm": 2,
                "settings": {"budget": budget},
                "wall_s": 1.2 * length * 1000 / speed * (1 + 0.1 * seed) + 0.1,
                "train_s": length * 1000 / speed * (1 + 0.1 * seed),
                "samples": length * 1000.0,
                "samples_per_s": speed,
                "peak_memory_bytes": 1.5e9,
                "peak_gpu_memory_bytes": float("nan"),
                "energy_j": 120.0,
                "energy_note": None,
            }
        )
        train_s = samples / speed * (1 + 0.1 * seed)
        frames.append(
            pd.DataFrame(
                {"samples": samples, "train_s": train_s, "wall_s": 1.2 * train_s + 0.1, "value": value}
            ).assign(**shared)
        )

    for job in ("dlrm", "speech"):
        for seed in (0, 1):
            add(job, "one-core", seed, 500, 30, "cloud-cpu-1")
            add(job, "all-cores", seed, 900, 30, "cloud-cpu-2")
    for seed, length in enumerate((30, 25, 9, 30, 12, 28, 0, 29, 22, 30, 8, 27, 30, 26, 30)):
        add("dlrm", "gpu", seed, 5000, length, None, status="done" if length > 20 else "failed")
    return pd.concat(frames, ignore_index=True), pd.DataFrame(rows)


CURVES, RUNS = synthetic()


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    file = tmp_path_factory.mktemp("page") / "index.html"
    file.write_text(build_page(CURVES, RUNS, {"Machine": "synthetic"}), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def loaded(browser, page_file):
    """The page, opened once from its file (plotly takes seconds to start), and what went wrong in it."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light", offline=True)
    page = context.new_page()
    faults = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    page.on("request", lambda request: faults.append(request.url) if is_remote(request.url) else None)
    page.goto(page_file.as_uri())
    page.wait_for_selector("#job1-targets .main-svg")
    yield page, faults
    context.close()


def is_remote(url):
    return not url.startswith(("file:", "data:", "blob:"))


@pytest.fixture
def page(loaded):
    """The page as it opens at 1280 px; the test fails on any script error or request to elsewhere."""
    page, faults = loaded
    page.set_viewport_size({"width": 1280, "height": 900})
    page.emulate_media(color_scheme="light")
    page.evaluate("() => { delete document.documentElement.dataset.theme; }")
    for job in ("job0", "job1"):
        page.locator(f'input[name="{job}-x"][value="wall_s"]').check()
        page.locator(f"#{job}-reset").click()
    settle(page)
    yield page
    assert faults == []


def move(page, job, value):
    """Puts the slider at the place `value` of its targets as a drag would, and waits for the page to follow."""
    page.locator(f"#{job}-target").evaluate(
        "(slider, value) => { slider.value = value; slider.dispatchEvent(new Event('input')); }", str(value)
    )
    settle(page)


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


def expected(job, target, x="wall_s"):
    name = ("dlrm", "speech")[int(job[-1])]
    runs = RUNS[RUNS["job"] == name]
    table = summary(CURVES[CURVES["job"] == name], runs, target, x=x)
    return [summary_cells(row) for _, row in table.iterrows()]


@pytest.mark.parametrize("job", ["job0", "job1"])
def test_at_every_slider_position_tried_the_table_is_that_of_the_analysis(page, job):
    slider = page.locator(f"#{job}-target")
    seen = set()
    for position in np.linspace(0, int(slider.get_attribute("max")), 9).round():
        move(page, job, int(position))
        target = target_of(page, job)
        assert shown(page, job) == expected(job, target), f"target {target}"
        seen.add(str(shown(page, job)))
    assert len(seen) > 4, "the positions tried should tell different stories"


def test_the_table_follows_the_clock_of_the_chosen_axis(page):
    for axis in ("train_s", "samples", "cost_usd"):
        page.locator(f'input[name="job0-x"][value="{axis}"]').check()
        settle(page)
        assert shown(page, "job0") == expected("job0", 0.75, "train_s" if axis == "train_s" else "wall_s")
    title = page.evaluate("document.getElementById('job0-curves').layout.xaxis.title.text")
    assert "US$" in title


def test_the_keyboard_moves_the_target_line_the_markers_and_the_table(page):
    plot = "document.getElementById('job0-curves')"
    rings = f"JSON.stringify({plot}.data.filter(t => t.meta.kind === 'reached').map(t => t.x))"
    before, marks = page.evaluate(f"{plot}.layout.shapes[0].y0"), page.evaluate(rings)
    page.locator("#job0-target").focus()
    for _ in range(8):
        page.keyboard.press("ArrowLeft")
    settle(page)
    target = target_of(page, "job0")
    assert target < before
    assert page.evaluate(f"{plot}.layout.shapes[0].y0") == target
    assert page.evaluate("document.getElementById('job0-targets').layout.shapes[0].x0") == target
    assert page.evaluate(rings) != marks
    assert page.locator("#job0-output").inner_text() == f"AUC {target:.6g}"
    assert page.locator("#job0-target").get_attribute("aria-valuetext") == f"AUC {target:.6g}"
    assert f"Target AUC {target:.6g}" in page.locator("#job0-curves").get_attribute("aria-label")
    page.locator("#job0-reset").click()
    settle(page)
    assert page.evaluate(f"{plot}.layout.shapes[0].y0") == 0.75


def test_the_mouse_moves_the_target(page):
    slider = page.locator("#job1-target")
    box = slider.bounding_box()
    page.mouse.click(box["x"] + 0.7 * box["width"], box["y"] + box["height"] / 2)
    settle(page)
    assert shown(page, "job1") == expected("job1", target_of(page, "job1"))


def test_one_curve_a_run_is_drawn_with_its_budget_in_the_legend(page):
    lines = "document.getElementById('job0-curves').data.filter(t => t.meta.kind === 'run')"
    assert page.evaluate(f"{lines}.flatMap(t => t.x).filter(x => x === null).length") == 18 - 3  # gaps between runs
    assert page.evaluate(f"{lines}.flatMap(t => t.x).length") == len(CURVES[CURVES["job"] == "dlrm"]) + 15
    legend = page.locator("#job0-curves .legendtext").all_text_contents()
    assert legend == ["one-core · emulated", "all-cores · measured", "gpu · measured"]


def test_hovering_a_curve_tells_seconds_samples_metric_and_seed(page):
    page.locator("#job0-curves").scroll_into_view_if_needed()
    place = page.evaluate(
        """() => {
          const plot = document.getElementById('job0-curves');
          const box = plot.getBoundingClientRect();
          const { xaxis, yaxis } = plot._fullLayout;
          const run = plot.data.find((trace) => trace.meta.kind === 'run');
          const at = run.x.indexOf(null) - 4;
          return [box.x + xaxis._offset + xaxis.d2p(run.x[at]), box.y + yaxis._offset + yaxis.d2p(run.y[at])];
        }"""
    )
    page.mouse.move(*place)
    page.wait_for_selector("#job0-curves .hoverlayer .hovertext")
    text = page.locator("#job0-curves .hoverlayer").text_content()
    assert all(word in text for word in ("AUC 0.", "s wall time", "samples", "seed 0"))


def test_the_list_of_runs_follows_and_marks_censored_ones(page):
    page.locator("#job0 details summary").click()
    move(page, "job0", page.locator("#job0-target").get_attribute("max"))
    text = page.locator("#job0 details").inner_text()
    assert "censored at" in text and "failed before the first evaluation" in text


def test_the_dark_background_follows_the_system_and_the_button(page):
    background = "getComputedStyle(document.body).backgroundColor"
    plot = "document.getElementById('job0-curves')._fullLayout.paper_bgcolor"
    light = page.evaluate(background), page.evaluate(plot)
    page.emulate_media(color_scheme="dark")
    settle(page)
    dark = page.evaluate(background), page.evaluate(plot)
    assert dark[0] != light[0] and dark[1] != light[1]
    page.locator("#theme").click()
    settle(page)
    assert (page.evaluate(background), page.evaluate(plot)) == light


@pytest.mark.parametrize("width", [320, 400, 768])
def test_a_narrow_window_does_not_scroll_sideways(page, width):
    page.set_viewport_size({"width": width, "height": 800})
    # the figures follow a moment after the window, as plotly debounces
    page.wait_for_function(f"document.documentElement.scrollWidth <= {width}", timeout=10_000)


def test_every_control_has_a_name_and_every_figure_a_description(page):
    for control in page.locator("input, button").all():
        name = control.evaluate(
            "node => node.getAttribute('aria-label') ?? node.labels?.[0]?.textContent ?? node.textContent"
        )
        assert name.strip()
    assert page.locator(".plot").count() == 4
    for figure in page.locator(".plot").all():
        assert len(figure.get_attribute("aria-label")) > 100


def test_no_button_offers_to_upload_the_chart(page):
    names = page.locator(".modebar-btn").evaluate_all("nodes => nodes.map(node => node.getAttribute('aria-label'))")
    assert "Reset axes" in names and not any("hare" in name or "loud" in name for name in names)


def test_names_from_runs_stay_text_in_the_browser(browser, tmp_path):
    evil = '</script><img src=x onerror="window.broken=1"><b>'
    curves, runs = CURVES[CURVES["job"] == "speech"].copy(), RUNS[RUNS["job"] == "speech"].copy()
    for frame in (curves, runs):
        frame["budget"] = frame["budget"].replace({"one-core": evil})
        frame["run"] = frame["run"].str.replace("speech", evil)
    file = tmp_path / "evil.html"
    file.write_text(build_page(curves, runs, {}), encoding="utf-8")
    page = browser.new_page()
    page.goto(file.as_uri())
    page.wait_for_selector("#job0-targets .main-svg")
    assert page.evaluate("window.broken === undefined && document.querySelectorAll('main img').length") == 0
    assert evil in page.locator("#job0-row-0 th").inner_text()
    page.close()

"""The page of a profile in a real browser, offline: every figure is drawn, the table sorts and filters."""

import pytest
import torch
from axe_playwright_python.sync_playwright import Axe

from labkit.course.slow_trainer import SlowTrainer
from labkit.hardware.calibration import Calibration
from labkit.profiling.recording.profile_steps import profile_steps
from labkit.report.profile_views import write_profile_page

CARD = Calibration("some CPU", 1, 100.0, 250.0, 20.0, 1.0, "2026-11-22")


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        folder = tmp_path_factory.mktemp("runs")
        profile = profile_steps(SlowTrainer().step, folder, card=CARD, skip=2, warmup=1, steps=2, memory=True)
    finally:
        torch.set_num_threads(threads)
    return write_profile_page(profile)


def test_every_figure_is_drawn_and_the_table_sorts_and_filters_by_keyboard(browser, page_file):
    page, errors = browser.new_page(), []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(page_file.as_uri())
    page.wait_for_selector(".js-plotly-plot .main-svg")
    assert page.locator(".js-plotly-plot").count() == 5 and errors == []

    calls = page.get_by_role("button", name="calls a step")
    calls.press("Enter")
    cells = page.locator("#operator-table tbody td:nth-child(2)").all_inner_texts()
    numbers = [float(cell.replace(",", "")) for cell in cells]
    assert len(numbers) > 10 and numbers == sorted(numbers, reverse=True)
    calls.press("Enter")
    assert page.get_by_role("columnheader", name="calls a step").get_attribute("aria-sort") == "ascending"
    page.get_by_label("Only names with").fill("EMBEDDING")
    names = page.locator("#operator-table tbody tr:visible th").all_inner_texts()
    assert names and all("embedding" in name.lower() for name in names)
    assert "operators" in page.locator("#status").inner_text()

    found = Axe().run(page, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21aa"]})
    assert found.violations_count == 0, found.generate_report()
    page.close()

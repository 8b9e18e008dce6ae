"""A notebook and every widget in a real JupyterLab, driven by a headless browser."""

import re
import shutil
from pathlib import Path

import pytest
from jupyter_lab import wait_for

from labkit_course.notebook_file import SOLUTIONS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
FIRST = Path(__file__).parents[2] / "notebooks" / "00_start_here.ipynb"
TRACES = "[...document.querySelectorAll('.js-plotly-plot')].map((plot) => plot.data.length)"
TRAINS = """
import labkit, plotly.graph_objects as go
from labkit_course import guess
from labkit.plots.descriptions import show
from labkit.widgets import live
guess("99.time", ..., "s")
with labkit.Run("tiny", target="accuracy >= 0.9", runs_dir="loop") as run:
    view = live(run)
    for number in range(3):
        run.step(0.5, samples=1)
        run.evaluate(accuracy=number / 10)
show(go.Figure(go.Scatter(x=[1, 2], y=[1, 2], name="one · measured")))
"""
PROFILED = """
import torch
from labkit_course.apparatus.slow_trainer import SlowTrainer
from labkit.profiling.profile import profile_steps
from labkit.widgets import profile_view
torch.set_num_threads(1)  # the browser needs the other core
profile_view(profile_steps(SlowTrainer().step, 'profiled', skip=2, warmup=1, steps=2, memory=True))
"""


def test_the_first_notebook_opens_and_a_training_loop_is_drawn_while_it_runs(lab, picture):
    shutil.copy(FIRST, lab.folder)
    (lab.folder / SOLUTIONS).mkdir()
    page = lab.open(FIRST.name, first=True)
    page.get_by_role("heading", name="Start here", exact=True).wait_for()
    page.locator("#table-of-contents").wait_for()  # the table of contents is open
    yours = page.locator(".jp-Cell:has(.labkit-yours) + .jp-CodeCell .jp-InputArea-editor").first
    border, prose = "(cell) => getComputedStyle(cell).borderLeftWidth", "(text) => getComputedStyle(text).maxWidth"
    assert yours.evaluate(border) == "4px"
    assert page.locator(".jp-RenderedMarkdown p").first.evaluate(prose) != "none"
    picture(page, "start_notebook.png", clip={"x": 0, "y": 0, "width": 1280, "height": 1000})
    for words in (SOLUTIONS, "Create Assignment", "official Jupyter news"):  # of which a student has no use
        assert page.get_by_text(words, exact=False).count() == 0, words
    page.context.close()
    page = lab.run("trains.ipynb", TRAINS)
    wait_for(page, f"{TRACES}.length === 2 && {TRACES}.every(Boolean)")
    box = page.get_by_label("99.time (s)")
    box.fill("2.5")
    box.press("Tab")
    page.keyboard.press("Enter")
    page.get_by_text("Your guess: 2.5 s.").wait_for(timeout=60_000)
    assert page.get_by_role("figure", name=re.compile("Line chart. Horizontal axis")).count() == 1
    tone = "getComputedStyle(document.querySelector('.js-plotly-plot .plotly')).filter"
    assert page.evaluate(tone) == "none"
    page.evaluate("document.body.dataset.jpThemeLight = 'false'")
    assert "invert" in page.evaluate(tone)
    page.context.close()


def test_the_profiles_views_are_chosen_by_keyboard(lab, picture):
    page = lab.run("profile.ipynb", PROFILED)
    titles = {
        "Icicle": "Time of one step, callees side by side (ms)",
        "Timeline": "Time since the step began (ms)",
        "Roofline": "Arithmetic intensity (operations per byte)",
        "Memory": "Time since the recording began (ms)",
    }
    for view, title in titles.items():
        page.get_by_role("button", name=view, exact=True).press("Enter")
        wait_for(page, f"document.querySelector('.js-plotly-plot').layout.xaxis.title.text === '{title}'")
        assert page.evaluate(TRACES)[0] >= 1
        if view == "Icicle":
            picture(page.locator(".jp-OutputArea-output").last, "profile.png")
    page.get_by_text("The 12 most expensive operators").click()
    page.get_by_role("rowheader", name="aten::mm", exact=True).wait_for(timeout=60_000)
    with page.expect_download(timeout=60_000) as download:
        page.get_by_role("button", name="Save PNG").press("Enter")
    assert Path(download.value.path()).read_bytes().startswith(b"\x89PNG")
    page.context.close()

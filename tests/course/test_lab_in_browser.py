"""Notebooks and widgets in a real JupyterLab, driven by a headless browser."""

import shutil
from pathlib import Path

import pytest
from jupyter_lab import serve, wait_for

from labkit.course.notebook_file import SOLUTIONS, called_names, canonical, read_notebook
from labkit.jobs.background import BackgroundRun
from labkit.runs import list_runs, read_run

NOTEBOOKS = Path(__file__).parents[2] / "notebooks" / SOLUTIONS
SMALL = {"data": "synthetic-small", "budget": "one-core", "max_epochs": 1, "target": "0.6"}


@pytest.fixture(scope="module")
def lab(browser, tmp_path_factory):
    with serve(tmp_path_factory.mktemp("lab"), tmp_path_factory.mktemp("home"), browser) as lab:
        yield lab


@pytest.fixture(scope="module")
def runs(lab):
    """Two small runs in the server's folder."""
    for seed in (0, 1):
        BackgroundRun("dlrm", lab.folder / "runs", seed=seed, **SMALL).wait()
    return lab.folder / "runs"


def widget_errors(page) -> list[str]:
    """What JupyterLab says in place of a widget that it cannot show."""
    said = ("Error displaying widget", "Loading widget...", "model not found", "Failed to load model")
    return [words for words in said if page.get_by_text(words).count()]


TRACES = "[...document.querySelectorAll('.js-plotly-plot')].map((plot) => plot.data.length)"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["00_start_here", "01_know_your_machine", "20_train_speech", "50_time_to_accuracy"])
def test_run_all_leaves_no_error_and_every_figure(lab, name, picture):
    notebook = read_notebook(NOTEBOOKS / f"{name}.ipynb")
    for cell in notebook.cells:
        if "parameters" in cell.metadata.get("tags", []):
            cell.source = cell.source.replace('profile = "standard"', 'profile = "smoke"')
    (lab.folder / f"{name}.ipynb").write_text(canonical(notebook), encoding="utf-8")
    page = lab.open(f"{name}.ipynb")
    lab.run_all(page)
    assert page.locator(".jp-OutputArea-output[data-mime-type='application/vnd.jupyter.error']").count() == 0
    calls = [called_names(cell.source) for cell in notebook.cells if cell.cell_type == "code"]
    drawn = sum(bool(names & {"show", "monitor", "live", "explore"}) for names in calls)
    # cells far from the view are drawn when they come into it
    for output in page.locator(".jp-CodeCell").all():
        output.scroll_into_view_if_needed()
    wait_for(page, lambda: len(page.evaluate(TRACES)) >= drawn and all(page.evaluate(TRACES)), 60)
    assert widget_errors(page) == []
    if name == "00_start_here":
        page.locator(".jp-Cell").first.scroll_into_view_if_needed()
        picture(page, "start_notebook.png", clip={"x": 0, "y": 0, "width": 1280, "height": 1000})
    page.context.close()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_explorers_slider_moves_a_trace_by_keyboard(lab, runs, scheme, picture):
    folders = [str(folder) for folder in list_runs(runs)["folder"]]
    name = f"explorer_{scheme}.ipynb"
    lab.write(name, f"from labkit.widgets import explore\nexplore({folders!r}, template='labkit_{scheme}')")
    page = lab.open(name)
    lab.run_all(page)
    page.wait_for_selector(".js-plotly-plot .main-svg", timeout=60_000)
    assert widget_errors(page) == []
    assert page.evaluate(TRACES)[0] >= 3
    ring = """document.querySelector('.js-plotly-plot').data
      .filter((trace) => trace.name === 'first crossing').map((trace) => [...trace.x, ...trace.y]).join()"""
    before = page.evaluate(ring)
    page.get_by_role("slider").first.focus()
    for _ in range(40):
        page.keyboard.press("ArrowRight")
    wait_for(page, lambda: page.evaluate(ring) != before, 30)
    if scheme == "light":
        picture(page.locator(".jp-OutputArea-output").first, "explorer.png")
    with page.expect_download(timeout=30_000) as download:
        page.get_by_role("button", name="Save PNG").press("Enter")
    assert Path(download.value.path()).read_bytes().startswith(b"\x89PNG")
    page.get_by_label("logarithmic horizontally").focus()
    page.keyboard.press("Space")
    wait_for(page, lambda: page.evaluate("document.querySelector('.js-plotly-plot').layout.xaxis.type") == "log", 30)
    page.context.close()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_profile_s_views_are_chosen_by_keyboard(lab, picture):
    lab.write(
        "profile.ipynb",
        "import torch\n"
        "from labkit.course.slow_trainer import SlowTrainer\n"
        "from labkit.profiling.recording.profile_steps import profile_steps\n"
        "torch.set_num_threads(1)  # the browser needs the other core\n"
        "profile = profile_steps(SlowTrainer().step, 'profiled', skip=3, steps=4, memory=True)",
        "from labkit.widgets import profile_view\nprofile_view(profile)",
    )
    page = lab.open("profile.ipynb")
    lab.run_all(page)
    page.wait_for_selector(".js-plotly-plot .main-svg", timeout=60_000)
    assert widget_errors(page) == []
    title = "document.querySelector('.js-plotly-plot').layout.xaxis.title.text"
    titles = {
        "Icicle": "Time of one step, callees side by side (ms)",
        "Timeline": "Time since the step began (ms)",
        "Roofline": "Arithmetic intensity (operations a byte)",
        "Memory": "Time since the recording began (ms)",
    }
    for view, expected in titles.items():
        page.get_by_role("button", name=view, exact=True).press("Enter")
        wait_for(page, lambda expected=expected: page.evaluate(title) == expected, 30)
        assert page.evaluate(TRACES)[0] >= 1
        if view == "Icicle":
            picture(page.locator(".jp-OutputArea-output").last, "profile.png")
    page.get_by_text("The 12 dearest operators").click()
    page.get_by_role("cell", name="aten::mm", exact=True).wait_for(timeout=30_000)
    page.context.close()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_monitor_shows_points_while_training_runs_and_its_button_stops_it(lab, picture):
    shutil.rmtree(lab.folder / "live", ignore_errors=True)
    lab.write(
        "monitor.ipynb",
        "from labkit.hardware.budgets.names import beside_a_view\n"
        "from labkit.jobs.background import BackgroundRun\n"
        "endless = {'data': 'synthetic-small', 'max_epochs': 100_000, 'target': '0.999', 'budget': beside_a_view()}\n"
        "run = BackgroundRun('dlrm', 'live', **endless)",
        "from labkit.widgets import monitor\nmonitor(run.folder)",
    )
    page = lab.open("monitor.ipynb")
    lab.run_all(page)
    points = "document.querySelector('.js-plotly-plot')?.data?.[0]?.x?.length ?? 0"
    wait_for(page, lambda: page.evaluate(points) >= 2, 90)
    assert widget_errors(page) == []
    (folder,) = (lab.folder / "live").iterdir()
    assert read_run(folder).status == "running"
    before = page.evaluate(points)
    wait_for(page, lambda: page.evaluate(points) > before, 60)
    # telemetry comes in parts of some seconds
    wait_for(page, lambda: page.evaluate(TRACES) == [5], 60)
    picture(page.locator(".jp-OutputArea-output").first, "monitor.png")
    page.get_by_role("button", name="Stop run").press("Enter")
    wait_for(page, lambda: read_run(folder).status == "stopped", 30)
    page.get_by_text("stopped on request").wait_for(timeout=30_000)
    page.context.close()

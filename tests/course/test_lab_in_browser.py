"""Notebooks and widgets in a real JupyterLab, driven by a headless browser."""

import shutil
from pathlib import Path

import pytest
from jupyter_lab import serve, wait_for

from labkit.course.notebook_file import SOLUTIONS, canonical, read_notebook
from labkit.runs import list_runs, read_run
from labkit.training.background import BackgroundRun
from labkit.training.request import TrainRequest

NOTEBOOKS = Path(__file__).parents[2] / "notebooks" / SOLUTIONS
SMALL = TrainRequest("dlrm", data="synthetic-small", budget="one-core", max_epochs=1, target="0.6")


@pytest.fixture(scope="module")
def lab(browser, tmp_path_factory):
    with serve(tmp_path_factory.mktemp("lab"), tmp_path_factory.mktemp("home"), browser) as lab:
        yield lab


@pytest.fixture(scope="module")
def runs(lab):
    """Two small runs in the server's folder."""
    for seed in (0, 1):
        BackgroundRun(TrainRequest(**(SMALL.to_dict() | {"seed": seed})), lab.folder / "runs").wait()
    return lab.folder / "runs"


def widget_errors(page) -> int:
    return page.get_by_text("Error displaying widget").count() + page.get_by_text("Loading widget...").count()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["00_start_here", "01_know_your_machine", "20_train_speech", "50_time_to_accuracy"])
def test_run_all_leaves_no_error_and_every_figure(lab, name):
    notebook = read_notebook(NOTEBOOKS / f"{name}.ipynb")
    for cell in notebook.cells:
        if "parameters" in cell.metadata.get("tags", []):
            cell.source = cell.source.replace('profile = "standard"', 'profile = "smoke"')
    (lab.folder / f"{name}.ipynb").write_text(canonical(notebook), encoding="utf-8")
    page = lab.open(f"{name}.ipynb")
    lab.run_all(page)
    assert page.locator(".jp-OutputArea-output[data-mime-type='application/vnd.jupyter.error']").count() == 0
    assert widget_errors(page) == 0
    shown = sum("show(figure" in cell.source for cell in notebook.cells if cell.cell_type == "code")
    # cells far from the view are drawn when they come into it
    for output in page.locator(".jp-CodeCell").all():
        output.scroll_into_view_if_needed()
    wait_for(page, lambda: page.locator(".js-plotly-plot .main-svg").count() >= shown, 60)
    page.context.close()


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_explorers_slider_moves_a_trace_by_keyboard(lab, runs, scheme):
    folders = [str(folder) for folder in list_runs(runs)["folder"]]
    name = f"explorer_{scheme}.ipynb"
    lab.write(name, f"from labkit.widgets import explore\nexplore({folders!r}, template='labkit_{scheme}')")
    page = lab.open(name)
    lab.run_all(page)
    page.wait_for_selector(".js-plotly-plot .main-svg", timeout=60_000)
    assert widget_errors(page) == 0
    traces = "document.querySelector('.js-plotly-plot').data"
    assert page.evaluate(f"{traces}.length") >= 3
    title = "document.querySelector('.js-plotly-plot').layout.shapes?.[0]?.y0 ?? 0"
    before = page.evaluate(title)
    page.get_by_role("slider").first.focus()
    for _ in range(5):
        page.keyboard.press("ArrowLeft")
    wait_for(page, lambda: page.evaluate(title) != before, 30)
    page.get_by_label("logarithmic").focus()
    page.keyboard.press("Space")
    wait_for(page, lambda: page.evaluate("document.querySelector('.js-plotly-plot').layout.xaxis.type") == "log", 30)
    page.context.close()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_monitor_shows_points_while_training_runs_and_its_button_stops_it(lab):
    shutil.rmtree(lab.folder / "live", ignore_errors=True)
    lab.write(
        "monitor.ipynb",
        "from labkit.training.background import BackgroundRun\n"
        "from labkit.training.request import TrainRequest\n"
        "run = BackgroundRun(TrainRequest('dlrm', data='synthetic-small', max_epochs=100_000, target='0.999'), 'live')",
        "from labkit.widgets import monitor\nmonitor(run.folder)",
    )
    page = lab.open("monitor.ipynb")
    lab.run_all(page)
    points = "document.querySelector('.js-plotly-plot')?.data?.[0]?.x?.length ?? 0"
    wait_for(page, lambda: page.evaluate(points) >= 2, 90)
    assert widget_errors(page) == 0
    (folder,) = (lab.folder / "live").iterdir()
    assert read_run(folder).status == "running"
    before = page.evaluate(points)
    wait_for(page, lambda: page.evaluate(points) > before, 30)
    page.get_by_role("button", name="Stop run").press("Enter")
    wait_for(page, lambda: read_run(folder).status == "stopped", 30)
    page.get_by_text("stopped on request").wait_for(timeout=30_000)
    page.context.close()

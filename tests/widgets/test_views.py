"""The live figure of a run in this process; the views of a profile."""

import pytest
from axe_playwright_python.sync_playwright import Axe

import labkit
from labkit.errors import UserError
from labkit.hardware import Calibration, one_thread
from labkit.profiling import profile_steps
from labkit.report import write_profile_page
from labkit.runs import read_run
from labkit.widgets import live, profile_view
from labkit_course.apparatus import SlowTrainer


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    monkeypatch.setenv("LABKIT_QUIET", "1")


def test_each_evaluation_is_a_point_beside_the_target(tmp_path):
    with labkit.Run("chars", target="perplexity <= 12", runs_dir=tmp_path) as run:
        view = live(run)
        assert not view.plot.data[0].x
        for perplexity in (40, 20, 10):
            run.step(1.0, samples=8)
            run.evaluate(perplexity=perplexity, bits=perplexity / 2)
            assert view.plot.data[0].y[-1] == perplexity
    (curve,), (target,) = view.figure.data, view.figure.layout.shapes
    assert curve.y == (40, 20, 10) and list(curve.x) == sorted(curve.x)
    assert curve.name in ("chars · measured", "chars · emulated")
    assert (target.y0, target.line.dash) == (12, "dash")
    assert view.figure.layout.xaxis.title.text.endswith("(s)")
    assert "perplexity 10 after" in view.words.value and "Horizontal axis" in view.words.value


def test_without_a_target_the_first_metric_is_drawn(tmp_path):
    with labkit.Run("own", runs_dir=tmp_path) as run:
        view = live(run)
        run.step(samples=8)
        run.evaluate(f1=0.4, recall=0.9)
    assert view.plot.data[0].y == (0.4,) and not view.figure.layout.shapes
    assert view.figure.layout.yaxis.title.text == "f1 on the validation split"


CARD = Calibration("some CPU", 1, 100.0, 250.0, 20.0, 1.0, "2026-11-22")


@pytest.fixture(scope="module")
def profile(tmp_path_factory):
    with one_thread():
        step = SlowTrainer(batch_size=8).step
        yield profile_steps(step, tmp_path_factory.mktemp("runs"), limits=CARD, skip=2, warmup=1, steps=2, memory=True)


def test_each_view_has_a_figure_words_and_a_line_of_code_that_draws_the_same(profile):
    view, titles = profile_view(profile.folder), {}
    for title, choice in view.view.options:
        view.view.value = choice
        titles[title] = view.figure.layout.xaxis.title.text
        assert "Horizontal axis" in view.words.value
        assert choice.code in view.code.value.replace("&#x27;", "'")
        drawn = eval(choice.code, {"labkit": labkit, "profile": profile})
        assert [trace.name for trace in drawn.data] == [trace.name for trace in view.figure.data] != []
    assert list(titles) == ["Phases", "Icicle", "Timeline", "Roofline", "Memory"]
    assert len(set(titles.values())) == 5
    assert all(finding.name in view.answer.value for finding in profile.findings) and profile.findings
    (operators,) = [child for child in view.children if getattr(child, "titles", None)]
    assert "aten::mm" in operators.children[0].value


def test_on_the_page_every_figure_is_drawn_and_the_table_sorts_and_filters_by_keyboard(browser, profile):
    page, errors = browser.new_page(), []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(write_profile_page(profile).as_uri())
    page.wait_for_selector(".js-plotly-plot .main-svg")
    assert page.locator(".js-plotly-plot").count() == 5 and errors == []

    calls = page.get_by_role("button", name="calls per step")
    calls.press("Enter")
    cells = page.locator("#operator-table tbody td:nth-child(2)").all_inner_texts()
    numbers = [float(cell.replace(",", "")) for cell in cells]
    assert len(numbers) > 10 and numbers == sorted(numbers, reverse=True)
    calls.press("Enter")
    assert page.get_by_role("columnheader", name="calls per step").get_attribute("aria-sort") == "ascending"
    page.get_by_label("Only names with").fill("EMBEDDING")
    names = page.locator("#operator-table tbody tr:visible th").all_inner_texts()
    assert names and all("embedding" in name.lower() for name in names)
    assert "operators" in page.locator("#status").inner_text()

    found = Axe().run(page, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21aa"]})
    assert found.violations_count == 0, found.generate_report()
    page.close()


def test_the_steps_of_a_callable_make_a_profiled_run_and_one_that_fails_a_failed_one(profile, tmp_path):
    def step():
        raise RuntimeError("no data")

    with pytest.raises(RuntimeError, match="no data"):
        profile_steps(step, tmp_path, limits=CARD)
    done, failed = (read_run(folder) for folder in (profile.folder, *tmp_path.iterdir()))
    assert (done.profiled, done.status, done.config["job"], failed.status) == (True, "done", "steps", "failed")
    assert set(profile.phases["phase"]) >= {"input", "forward", "backward", "optimiser", "sync"}


def test_a_run_without_a_profile_is_refused(tmp_path):
    with pytest.raises(UserError, match="not a run folder"):
        profile_view(tmp_path)

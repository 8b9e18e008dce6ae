"""The view of a profile, without a browser: each choice draws its figure, with words and a line of code."""

import pytest
import torch

from labkit.course.slow_trainer import SlowTrainer
from labkit.errors import UserError
from labkit.hardware.calibration import Calibration
from labkit.profiling.recording.profile_steps import profile_steps
from labkit.runs import read_run
from labkit.widgets import profile_view

CARD = Calibration("some CPU", 1, 100.0, 250.0, 20.0, 1.0, "2026-11-22")


@pytest.fixture(scope="module")
def profile(tmp_path_factory):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        step = SlowTrainer().step
        yield profile_steps(step, tmp_path_factory.mktemp("runs"), card=CARD, skip=2, warmup=1, steps=2, memory=True)
    finally:
        torch.set_num_threads(threads)


def test_each_view_has_a_figure_words_and_code(profile):
    view = profile_view(profile)
    titles = {}
    for title, choice in view.view.options:
        view.view.value = choice
        titles[title] = view.figure.layout.xaxis.title.text
        assert len(view.figure.data) >= 1
        assert "Horizontal axis" in view.words.value
        assert choice.code in view.code.value.replace("&#x27;", "'")
    assert list(titles) == ["Phases", "Icicle", "Timeline", "Roofline", "Memory"]
    assert len(set(titles.values())) == 5


def test_the_line_of_code_draws_the_same(profile):
    from labkit.plots.gantt import figure_icicle
    from labkit.profiling.call_tree import call_tree

    view = profile_view(profile.folder)
    view.view.value = dict(view.view.options)["Icicle"]
    drawn = eval(view.view.value.code, {"figure_icicle": figure_icicle, "call_tree": call_tree, "profile": profile})
    assert [trace.name for trace in drawn.data] == [trace.name for trace in view.figure.data]


def test_what_to_try_and_the_operators_are_said(profile):
    view = profile_view(profile)
    assert all(finding.name in view.answer.value for finding in profile.findings) and profile.findings
    (operators,) = [child for child in view.children if getattr(child, "titles", None)]
    assert "aten::mm" in operators.children[0].value


def test_the_steps_of_a_callable_make_a_profiled_run(profile):
    record = read_run(profile.folder)
    assert record.profiled and record.status == "done" and record.config["job"] == "steps"
    assert profile.time.steps == 2
    assert set(profile.phases["phase"]) >= {"input", "forward", "backward", "optimiser", "sync"}


def test_a_step_that_fails_leaves_a_failed_run(tmp_path):
    def step():
        raise RuntimeError("no data")

    with pytest.raises(RuntimeError, match="no data"):
        profile_steps(step, tmp_path, card=CARD)
    assert read_run(next(tmp_path.iterdir())).status == "failed"


def test_a_run_without_a_profile_is_refused(tmp_path):
    with pytest.raises(UserError, match="no run folder"):
        profile_view(tmp_path)

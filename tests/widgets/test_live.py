"""The live figure of a run in this process, without a browser."""

import pytest

import labkit
from labkit.widgets import live


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

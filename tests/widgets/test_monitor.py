"""Live figures: of a run in this process, without a browser, and of another's folder alone."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from made_up import new_run, write_run, write_samples
from processes import wait_for

import labkit
from labkit.errors import UserError
from labkit.launch import watch
from labkit.runs import run_folders
from labkit.widgets import live, monitor


def test_a_run_of_another_process_is_watched_frozen_and_stopped(tmp_path):
    settings = {"data": "synthetic-small", "max_epochs": 100_000, "max_seconds": 500, "target": "0.999"}
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(watch, "dlrm", tmp_path, **settings)
        folder = wait_for(lambda: next(iter(run_folders(tmp_path)), None))
        later = write_run(tmp_path, [0.7] * 1000)
        view = monitor(tmp_path, refresh_s=0.01)
        assert view.folder == folder, "of several the one that is running"
        wait_for(lambda: len(view.plot.data) >= 5 and len(view.plot.data[0].x or ()) > 1)  # with telemetry
        for _ in range(20):
            view.refresh()  # while its own thread does
            assert len(view.plot.data) == len({trace.name for trace in view.plot.data})
        assert "running" in view.status.value and "AUC" in view.status.value
        assert "Horizontal axis" in view.words.value and "samples/s" in view.words.value
        view.pause.value = True
        view.refresh()
        frozen = view.plot.data[0].x
        time.sleep(0.5)  # fifty refreshes
        assert view.plot.data[0].x == frozen
        view.pause.value = False
        view.stop.click()
        assert view.stop.disabled
        assert run.result()["status"] == "stopped"
        view.wait(30)
        assert "stopped" in view.status.value and "(stopped on request)" in view.status.value
        assert view.pause.disabled
    again = monitor(folder)  # by another kernel, later
    assert "stopped" in again.status.value
    assert len(again.plot.data[0].x) >= len(frozen)
    assert {"emulated", "measured"} & {trace.name.rpartition(" · ")[2] for trace in again.figure.data}
    assert monitor(tmp_path).folder == max(folder, later), "now the latest"
    assert len(monitor(later).plot.data[0].x) == 400, "a browser redraws all points"


def test_of_several_gpus_only_the_runs_own_is_shown(tmp_path):
    gpus = [{"torch_name": f"cuda:{number}", "uuid": f"GPU-{number}"} for number in (0, 1)]
    run = new_run(tmp_path, "own-script", torch_name="cuda:1", devices=gpus)
    for number, percent in ((0, 10.0), (1, 90.0)):
        write_samples(run.folder, f"GPU-{number}", "gpu_utilisation", dict.fromkeys((1, 2, 3), percent), unit="%")
    run.finish("done", {})
    view = monitor(run.folder)  # a run of another program than ours, too: it has no configuration
    shown = {trace.name.partition(" (")[0]: list(trace.y) for trace in view.plot.data}
    assert shown["GPU with a kernel running"] == [90.0, 90.0, 90.0]
    assert "own-script, whole machine: done" in view.status.value


def test_a_folder_without_runs_is_refused(tmp_path):
    with pytest.raises(UserError, match="has no runs"):
        monitor(tmp_path)


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

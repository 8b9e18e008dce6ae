"""The monitor follows a run from its folder alone, freezes, stops it, and says how it ended."""

import time

import pytest

from labkit.errors import UserError
from labkit.runs import read_run
from labkit.training.background import BackgroundRun
from labkit.training.request import TrainRequest
from labkit.widgets import monitor
from labkit.widgets.feed import RunFeed
from labkit.widgets.monitor import find

ENDLESS = TrainRequest("dlrm", data="synthetic-small", max_epochs=100_000, target="0.999")


def wait_for(what, deadline_s: float = 60.0):
    """Poll until `what()` is true; a deadline, not a measurement."""
    end = time.monotonic() + deadline_s
    while not what():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def test_a_run_of_another_process_is_watched_frozen_and_stopped(tmp_path):
    run = BackgroundRun(ENDLESS, tmp_path)
    try:
        view = monitor(run.folder, refresh_s=0.1)
        wait_for(lambda: len(view.plot.data) >= 5 and len(view.plot.data[0].x or ()) > 1)  # with telemetry
        assert "running" in view.status.value and "AUC" in view.status.value
        assert "Horizontal axis" in view.words.value and "samples/s" in view.words.value
        view.pause.value = True
        frozen = view.plot.data[0].x
        time.sleep(0.5)  # five refreshes
        assert view.plot.data[0].x == frozen
        view.pause.value = False
        view.stop.click()
        assert view.stop.disabled
        assert run.wait()["status"] == "stopped"
        view.wait(30)
        assert "stopped" in view.status.value and "(stopped on request)" in view.status.value
        assert view.pause.disabled
    finally:
        run.stop()
    again = monitor(tmp_path)  # by another kernel, later
    assert "stopped" in again.status.value
    assert len(again.plot.data[0].x) >= len(frozen)
    assert {"emulated", "measured"} & {trace.name.rpartition(" · ")[2] for trace in again.figure.data}


def test_a_folder_of_runs_gives_the_one_that_is_running(tmp_path):
    run = BackgroundRun(ENDLESS, tmp_path)
    try:
        folder = run.folder
        BackgroundRun(TrainRequest("dlrm", data="synthetic-small", max_epochs=1), tmp_path).wait()
        assert find(tmp_path) == folder
    finally:
        run.stop()
        run.wait()
    assert find(tmp_path) != folder  # now the latest


def test_no_run_is_told(tmp_path):
    with pytest.raises(UserError, match="there is no run here"):
        monitor(tmp_path)


def test_the_feed_waits_for_the_end(tmp_path):
    run = BackgroundRun(TrainRequest("dlrm", data="synthetic-small", max_epochs=1), tmp_path)
    assert RunFeed(run.folder).wait_for_end(60) == "done"
    snapshot = RunFeed(run.folder).read()
    assert snapshot.result["steps"] == read_run(run.folder).result["steps"]
    assert snapshot.metric.x == sorted(snapshot.metric.x)
    assert "Memory of the run (GiB)" in snapshot.telemetry

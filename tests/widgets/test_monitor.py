"""The monitor follows a run from its folder alone, freezes, stops it, and says how it ended."""

import time

import pytest

from labkit.errors import UserError
from labkit.jobs.background import BackgroundRun
from labkit.runs import Provenance, RunWriter, read_run
from labkit.runs.parts import TELEMETRY, PartWriter
from labkit.telemetry.latest import Latest
from labkit.telemetry.reading import Reading
from labkit.widgets import monitor
from labkit.widgets.feed import RunFeed, Series
from labkit.widgets.monitor import counters_html, find, thinned

ENDLESS = {"data": "synthetic-small", "max_epochs": 100_000, "target": "0.999"}
SHORT = {"data": "synthetic-small", "max_epochs": 1}


def wait_for(what, deadline_s: float = 60.0):
    """Poll until `what()` is true; a deadline, not a measurement."""
    end = time.monotonic() + deadline_s
    while not what():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def test_a_run_of_another_process_is_watched_frozen_and_stopped(tmp_path):
    run = BackgroundRun("dlrm", tmp_path, **ENDLESS)
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
    run = BackgroundRun("dlrm", tmp_path, **ENDLESS)
    try:
        folder = run.folder
        BackgroundRun("dlrm", tmp_path, **SHORT).wait()
        assert find(tmp_path) == folder
    finally:
        run.stop()
        run.wait()
    assert find(tmp_path) != folder  # now the latest


def test_of_several_gpus_only_the_runs_own_is_shown(tmp_path):
    gpus = [{"torch_name": f"cuda:{number}", "uuid": f"GPU-{number}"} for number in (0, 1)]
    run = RunWriter.create(
        tmp_path, "own-script", config={}, budget={"torch_name": "cuda:1"}, tier=None, devices=gpus, seed=0,
        provenance=Provenance.now("measured"), software={},
    )  # fmt: skip
    parts = PartWriter(run.folder / "telemetry", TELEMETRY)
    for number in range(6):
        parts.append(
            {
                "time_ns": number * 10**9, "device": f"GPU-{number % 2}", "scope": "device", "pid": 1,
                "counter": "gpu_utilisation", "value": 90.0 if number % 2 else 10.0, "unit": "%",
                "source": "s", "note": "",
            }
        )  # fmt: skip
    parts.flush()
    run.finish("done", {})
    view = monitor(run.folder)  # a run of another program than ours, too: it has no configuration
    shown = {trace.name.partition(" (")[0]: list(trace.y) for trace in view.plot.data}
    assert shown["GPU with a kernel running"] == [90.0, 90.0, 90.0]
    assert "own-script, whole machine: done" in view.status.value


def test_every_counter_is_shown_or_its_absence_explained():
    latest = Latest()
    latest.take(
        [
            Reading("host", "process", "memory_resident", 3.0 * 2**30, "bytes", "/proc/PID/statm"),
            Reading("GPU-1", "device", "sm_active", None, "%", "NVML GPM", "not on <this> GPU"),
        ]
    )
    page = counters_html(latest)
    assert "<td>memory_resident</td><td>3 GiB</td>" in page
    assert "<td>/proc/PID/statm</td>" in page
    assert "<li>sm_active: not on &lt;this&gt; GPU</li>" in page


def test_two_threads_may_refresh_at_once(tmp_path):
    run = BackgroundRun("dlrm", tmp_path, **ENDLESS)
    try:
        view = monitor(run.folder, refresh_s=0.001)
        wait_for(lambda: view.refresh() and len(view.plot.data) >= 5)
        for _ in range(50):
            view.refresh()
            assert len(view.plot.data) == len({trace.name for trace in view.plot.data})
        assert "The view stopped" not in view.status.value
        view.close()
        view.wait(10)  # from here on nothing is drawn any more
        assert f"{view.plot.data[0].y[-1]:.4g}"[:5] in view.words.value
    finally:
        run.stop()
        run.wait()


def test_a_run_can_be_stopped_before_it_began(tmp_path):
    run = BackgroundRun("dlrm", tmp_path, **ENDLESS)
    run.stop()
    assert run.wait()["status"] == "stopped"


def test_a_refused_run_is_told_where_it_is_waited_for(tmp_path):
    run = BackgroundRun("dlrm", tmp_path, data="no-such-data")
    with pytest.raises(UserError, match="no-such-data"):
        run.wait()
    run.stop()


def test_long_series_are_thinned_for_the_browser():
    x, y = thinned(Series(list(range(5000)), list(range(5000))))
    assert len(x) == len(y) == 400
    assert (x[0], x[-1], y[-1]) == (0, 4999, 4999)


def test_an_unknown_theme_is_refused(tmp_path):
    with pytest.raises(UserError, match="labkit_dark"):
        monitor(tmp_path, template="dark")


def test_no_run_is_told(tmp_path):
    with pytest.raises(UserError, match="there is no run here"):
        monitor(tmp_path)


def test_the_feed_waits_for_the_end(tmp_path):
    run = BackgroundRun("dlrm", tmp_path, **SHORT)
    assert RunFeed(run.folder).wait_for_end(60) == "done"
    snapshot = RunFeed(run.folder).read()
    assert snapshot.result["steps"] == read_run(run.folder).result["steps"]
    assert snapshot.metric.x == sorted(snapshot.metric.x)
    assert "Memory of the run (GiB)" in snapshot.telemetry

"""`watch` prints how a run goes, and an interrupt ends the run before it ends the cell."""

import sys

import pytest

from labkit.jobs.launching import watch
from labkit.tracking import Progress, ProgressLine, Started, events
from labkit.tracking.events import Point

TRAIN = {"target": 0.72, "target_metric": "auc", "higher_is_better": True, "batch_size": 512, "seed": 3}
BUDGET = {"name": "one-core", "emulated": True}
STARTED = Started("r", "runs/r", {"job": "dlrm", "data": {"name": "synthetic-small"}, "budget": BUDGET, "train": TRAIN})
RESULT = {"wall_s": 2.0, "reason": "target reached", "target_reached": True, "time_to_target_s": 1.5}
ENDED = {"run": "r", "folder": "runs/r", "status": "done", "result": RESULT}


def progress(samples, *, evaluated=True):
    return Progress(Point(1, samples, samples / 1e5, 0.0), 1e5, 0.5, {"auc": 0.7}, evaluated)


def test_says_how_a_run_begins_and_ends_and_prints_an_evaluation_a_second(capsys, monkeypatch):
    clock = iter([10.0, 10.4, 11.1])
    monkeypatch.setattr(events.time, "monotonic", lambda: next(clock))
    line = ProgressLine(sys.stdout)
    for event in (STARTED, progress(1000), progress(1500, evaluated=False), progress(2000), progress(3000), ENDED):
        line(event)
    out = capsys.readouterr().out
    assert "dlrm on synthetic-small, one-core (emulated), batch_size 512, seed 3, target auc 0.72" in out
    assert "1,000 samples" in out and "3,000 samples" in out
    assert "1,500 samples" not in out and "2,000 samples" not in out
    assert "target first reached after 1.5 s" in out
    line = ProgressLine(sys.stdout, evaluations=False)
    short = {"target_reached": False, "time_to_target_s": None, "best_validation": 0.71}
    for event in (STARTED, progress(1000), ENDED | {"result": RESULT | short}):
        line(event)
    out = capsys.readouterr().out
    assert len(out.splitlines()) == 2 and "target not reached, best 0.7100" in out


def test_an_interrupt_stops_the_run_before_it_ends_the_cell(tmp_path, monkeypatch):
    calls = []

    class Interrupted:
        def __init__(self, *command):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *exception):
            calls.append("left")

        def stop(self):
            calls.append("stopped")

        def events(self):
            calls.append("followed")
            if len(calls) == 1:
                raise KeyboardInterrupt
            return iter(())

    monkeypatch.setattr("labkit.tracking.LaunchedRun", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        watch("dlrm", tmp_path)
    assert calls == ["followed", "stopped", "followed", "left"]

"""`watch` prints how a run goes, and an interrupt ends the run before it ends the cell."""

from __future__ import annotations

import pytest

from labkit.jobs import watch as watch_module
from labkit.jobs.watch import watch
from labkit.tracking import progress_line

TRAIN = {"target": 0.72, "target_metric": "auc", "higher_is_better": True, "batch_size": 512, "seed": 3}
BUDGET = {"name": "one-core", "emulated": True}
CONFIG = {"job": "dlrm", "data": {"name": "synthetic-small"}, "budget": BUDGET, "train": TRAIN}
RUN = {"run": "r", "folder": "runs/r"}
STARTED = {"kind": "Started", **RUN, "config": CONFIG}
RESULT = {"wall_s": 2.0, "reason": "target reached", "target_reached": True, "time_to_target_s": 1.5}
ENDED = {"kind": "Ended", **RUN, "status": "done", "result": RESULT}


def progress(samples, *, evaluated=True):
    point = {"wall_s": samples / 1e5, "train_s": 0.0, "step": 1, "samples": samples}
    metrics = {"samples_per_s": 1e5, "loss": 0.5, "metrics": {"auc": 0.7}}
    return {"kind": "Progress", "point": point, **metrics, "evaluated": evaluated}


@pytest.fixture
def launched(monkeypatch):
    """A run that plays the events put into `script`."""

    class Played:
        script: list = []  # noqa: RUF012
        stopped = closed = False

        def __init__(self, command, shows_output=False):
            self.answer, self._events = None, iter(Played.script)

        def __enter__(self):
            return self

        def __exit__(self, *exception):
            Played.closed = True

        def stop(self):
            Played.stopped = True

        def events(self):
            for event in self._events:
                if event["kind"] == "Ended":
                    self.answer = {name: value for name, value in event.items() if name != "kind"}
                yield event

    monkeypatch.setattr(watch_module, "LaunchedRun", Played)
    return Played


def test_says_how_the_run_begins_and_ends_and_prints_an_evaluation_a_second(launched, tmp_path, capsys, monkeypatch):
    clock = iter([10.0, 10.4, 11.1])
    monkeypatch.setattr(progress_line.time, "monotonic", lambda: next(clock))
    launched.script = [STARTED, progress(1000), progress(1500, evaluated=False), progress(2000), progress(3000), ENDED]
    assert watch("dlrm", tmp_path)["folder"] == "runs/r"
    out = capsys.readouterr().out
    assert "dlrm on synthetic-small, one-core (emulated), batch_size 512, seed 3, target auc 0.72" in out
    assert "1,000 samples" in out and "3,000 samples" in out
    assert "1,500 samples" not in out and "2,000 samples" not in out
    assert "target first reached after 1.5 s" in out
    short = {"target_reached": False, "time_to_target_s": None, "best_validation": 0.71}
    launched.script = [STARTED, progress(1000), ENDED | {"result": RESULT | short}]
    watch("dlrm", tmp_path, evaluations=False)
    out = capsys.readouterr().out
    assert len(out.splitlines()) == 2 and "target not reached, best 0.7100" in out


def test_an_interrupt_stops_the_run_before_it_ends_the_cell(launched, tmp_path, monkeypatch):
    launched.script = [STARTED, progress(1000), ENDED | {"status": "stopped"}]
    follow, calls = watch_module._follow, []

    def interrupted_once(run, printer):
        calls.append(launched.stopped)
        if len(calls) == 1:
            raise KeyboardInterrupt
        follow(run, printer)

    monkeypatch.setattr(watch_module, "_follow", interrupted_once)
    with pytest.raises(KeyboardInterrupt):
        watch("dlrm", tmp_path)
    assert calls == [False, True]
    assert launched.closed

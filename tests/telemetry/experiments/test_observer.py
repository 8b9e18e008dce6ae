import contextlib
import math

import numpy as np
import pandas as pd
import psutil
import pytest
from fake_nvml import put_on_path
from processes import wait_for

from labkit_course.apparatus import effects, observe, observer_effect, observers
from labkit_course.apparatus.observer_effect import NOBODY, NOBODY_OUTSIDE, Observer
from labkit_course.lab import from_lab

overhead = from_lab("31", "overhead")


def made_up(ratios: dict[str, float], noise: float, seed: int = 0) -> pd.DataFrame:
    """Step times of a machine that slows down over the rounds, as machines do."""
    random = np.random.default_rng(seed)
    rows = [
        (name, NOBODY, number, ratio * (1 + number / 5) * math.exp(noise * random.normal()), "measured")
        for number in range(12)
        for name, ratio in {NOBODY: 1.0, **ratios}.items()
    ]
    return pd.DataFrame(rows, columns=["observer", "beside", "round", "step_time_ms", "provenance"])


def test_a_cost_beyond_noise_is_found_and_drift_is_not_taken_for_it():
    frame = effects(made_up({"dear": 1.2, "free": 1.0}, noise=0.01), overhead).set_index("observer")
    assert frame.loc["dear", "ratio"] == pytest.approx(1.2, rel=0.02) and frame.loc["dear", "low"] > 1.15
    assert frame.loc["dear", "verdict"].endswith("% slower")
    assert frame.loc["free", "verdict"] == "not distinguishable from noise"
    rows = [effects(made_up({"x": 1.0}, noise=0.1, seed=seed), overhead).iloc[0] for seed in range(200)]
    # 190 expected of 200 at 95 %, standard deviation 3.1
    assert 180 <= sum(row["low"] <= 1 <= row["high"] for row in rows) <= 199


def test_each_observer_takes_its_turn_in_every_round_and_a_loop_runs_only_while_it_looks(monkeypatch, tmp_path):
    put_on_path(tmp_path, monkeypatch, "nvidia-smi", f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 600\n")
    watched = []

    @contextlib.contextmanager
    def watching():
        watched.append("in")
        yield
        watched.append("out")

    known = {each.name: each for each in observers()}
    by = [known[NOBODY], known["labkit's sampler, 100 Hz"], known["torch.profiler, stacks"]]
    frame = observe("light", [*by, Observer("one", watching), Observer("absent", why_not="no")], rounds=2, seconds=0.0)
    assert frame.groupby("observer").size().to_dict() == {**{each.name: 2 for each in by}, "one": 2}
    assert watched == ["in", "out"] * 2
    assert set(frame["provenance"]) == {"measured"} and (frame["step_time_ms"] > 0).all()
    assert len(effects(frame, overhead)) == 3
    with known["nvidia-smi"].watching():
        wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


NSYS = """#!/bin/sh
[ "$1" = profile ] && [ "$2" = --output ] || exit 9
shift 3
"$@" || exit
echo "Generated: a report"
"""
PYTHON = """#!/bin/sh
echo "$@" >> {seen}
echo '{"step_time_ms": 2.0, "peak_memory_bytes": 0}'
"""


def test_an_observer_that_starts_the_program_is_compared_with_a_process_of_its_own(tmp_path, monkeypatch):
    tool = put_on_path(tmp_path, monkeypatch, "nsys", NSYS)
    nsys = next(each for each in observers() if each.name == "nsys")
    found = observer_effect.whole_run("light", nsys, steps=3)
    assert found["peak_memory_bytes"] > 50e6 and found["span_s"] > 3e-3 * found["step_time_ms"]
    python = put_on_path(tmp_path, monkeypatch, "python", PYTHON.replace("{seen}", str(tmp_path / "seen")))
    monkeypatch.setattr(observer_effect.sys, "executable", str(python))
    frame = observe("light", [Observer(NOBODY), nsys], rounds=2, seconds=0.01)
    pairs = frame.groupby(["observer", "beside"]).size().to_dict()
    assert pairs == dict.fromkeys([(NOBODY, NOBODY), *((name, NOBODY_OUTSIDE) for name in ("nsys", NOBODY_OUTSIDE))], 2)
    (effect,) = effects(frame, overhead).itertuples()
    assert (effect.observer, effect.ratio) == ("nsys", 1.0)
    seen = (tmp_path / "seen").read_text().splitlines()
    assert len(seen) == 1 + 4 and all(" light nobody " in line for line in seen)  # it is tried once before
    tool.write_text("#!/bin/sh\necho 'perf_event_paranoid is too high' >&2\nexit 1\n")
    with pytest.warns(UserWarning, match="failed under nsys: perf_event_paranoid is too high. It is left out"):
        frame = observe("light", [Observer(NOBODY), nsys], rounds=1, seconds=0.01)
    assert set(frame["observer"]) == {NOBODY}


def test_observers_that_cannot_look_say_why(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    tools = ("nvidia-smi", "dcgmi", "nsys")
    missing = {each.name: each.why_not for each in observers() if each.why_not}
    assert missing == {tool: f"{tool} is not on PATH" for tool in tools}


def test_a_profiler_writes_its_report_within_the_span_and_a_sampler_uses_some_of_a_core(tmp_path):
    known = {each.name: each for each in observers()}
    report = tmp_path / "trace.json"
    step = observer_effect._make_load("light")
    assert observer_effect._step_time_ms(step, known["torch.profiler"], 2, report=str(report)) > 0
    assert report.stat().st_size > 1000
    assert 0 <= observer_effect.sampler_cpu_percent(20, 0.2) < 100

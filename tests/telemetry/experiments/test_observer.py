import contextlib
import math
import time

import numpy as np
import pandas as pd
import pytest

from labkit.errors import UserError
from labkit.telemetry.experiments.observer_effect import observe, observer_ratios, overhead, peak_memory_bytes
from labkit.telemetry.experiments.observers import NOBODY, NOBODY_OUTSIDE, Observer, observers


def made_up(ratios: dict[str, float], noise: float, rounds: int = 12) -> pd.DataFrame:
    """Step times of a machine that slows down over the rounds, as machines do."""
    random = np.random.default_rng(0)
    rows = [
        (name, NOBODY, number, ratio * (1 + number / 5) * math.exp(noise * random.normal()), "measured")
        for number in range(rounds)
        for name, ratio in {NOBODY: 1.0, **ratios}.items()
    ]
    return pd.DataFrame(rows, columns=["observer", "beside", "round", "step_time_ms", "provenance"])


def test_a_cost_beyond_noise_is_found_and_drift_is_not_taken_for_it():
    frame = overhead(made_up({"dear": 1.2, "free": 1.0}, noise=0.01)).set_index("observer")
    assert frame.loc["dear", "ratio"] == pytest.approx(1.2, rel=0.02)
    assert frame.loc["dear", "low"] > 1.15
    assert frame.loc["dear", "verdict"].endswith("% slower")
    assert frame.loc["free", "verdict"] == "not distinguishable from noise"
    (verdict,) = overhead(made_up({"cheap": 1.001}, noise=0.5))["verdict"]
    assert verdict == "not distinguishable from noise"


def test_the_interval_holds_the_truth_as_often_as_it_says():
    held = 0
    for seed in range(200):
        random = np.random.default_rng(seed)
        frame = made_up({"x": 1.0}, noise=0.0)
        frame["step_time_ms"] *= np.exp(0.1 * random.normal(size=len(frame)))
        row = overhead(frame).iloc[0]
        held += row["low"] <= 1 <= row["high"]
    assert 180 <= held <= 199  # 190 expected of 200 at 95 %, standard deviation 3.1


def test_every_observer_that_can_look_here_takes_its_turn_in_every_round():
    watched = []

    @contextlib.contextmanager
    def watching():
        watched.append("in")
        yield
        watched.append("out")

    able = [each for each in observers() if each.why_not is None]
    assert {each.name for each in able} >= {NOBODY, "labkit's sampler, 1 Hz", "torch.profiler, stacks"}
    by = [*able, Observer("one", watching), Observer("absent", why_not="not here")]
    frame = observe("light", by, rounds=2, seconds=0.0)
    outside = {NOBODY_OUTSIDE: 2} if any(each.around for each in able) else {}
    assert frame.groupby("observer").size().to_dict() == {each.name: 2 for each in by[:-1]} | outside
    assert watched == ["in", "out"] * 2
    assert set(frame["provenance"]) == {"measured"} and (frame["step_time_ms"] > 0).all()
    assert len(overhead(frame)) == len(by) - 2


NSYS = """#!/bin/sh
[ "$1" = profile ] && [ "$2" = --output ] || exit 9
echo "$@" >> {folder}/seen
report="$3"; shift 3
"$@"
status=$?
touch "$report.nsys-rep"
echo "Generated: $report.nsys-rep"
exit $status
"""


@pytest.fixture
def nsys(tmp_path, monkeypatch) -> Observer:
    tool = tmp_path / "nsys"
    tool.write_text(NSYS.replace("{folder}", str(tmp_path)))
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return next(each for each in observers() if each.name == "nsys")


def test_an_observer_that_starts_the_program_is_compared_with_a_process_of_its_own(nsys, tmp_path):
    frame = observe("light", [Observer(NOBODY), nsys], rounds=2, seconds=0.01)
    assert frame.groupby(["observer", "beside"]).size().to_dict() == {
        (NOBODY, NOBODY): 2,
        ("nsys", NOBODY_OUTSIDE): 2,
        (NOBODY_OUTSIDE, NOBODY_OUTSIDE): 2,
    }
    (effect,) = overhead(frame).itertuples()
    assert effect.observer == "nsys" and effect.ratio > 0
    seen = (tmp_path / "seen").read_text().splitlines()
    assert len(seen) == 1 + 2 and all(" light nobody " in line for line in seen)  # it is tried once before
    assert peak_memory_bytes("light", nsys, steps=3) > 50e6


def test_a_process_that_fails_says_what_it_said_and_such_a_profiler_is_left_out(nsys, tmp_path):
    with pytest.raises(UserError, match="failed under nsys: KeyError: 'weightless'"):
        peak_memory_bytes("weightless", nsys, steps=3)
    (tmp_path / "nsys").write_text("#!/bin/sh\necho 'perf_event_paranoid is too high' >&2\nexit 1\n")
    with pytest.warns(UserWarning, match="failed under nsys: perf_event_paranoid is too high. It is left out"):
        frame = observe("light", [Observer(NOBODY), nsys], rounds=2, seconds=0.01)
    assert set(frame["observer"]) == {NOBODY}


def test_observers_that_cannot_look_say_why(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    tools = {"nvidia-smi every second": "nvidia-smi", "dcgmi every second": "dcgmi", "nsys": "nsys"}
    missing = {each.name: each.why_not for each in observers() if each.why_not}
    assert missing == {name: f"{tool} is not on PATH" for name, tool in tools.items()}


def test_a_loop_runs_only_while_it_looks(monkeypatch, tmp_path):
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nwhile :; do sleep 0.1; done\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    import psutil

    (loop,) = (each for each in observers() if each.name.startswith("nvidia-smi"))
    with loop.watching():
        deadline = time.monotonic() + 20
        while not (tmp_path / "pid").exists() and time.monotonic() < deadline:
            pass
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


def test_the_papers_ratios_come_from_its_seconds():
    frame = observer_ratios().set_index("observer")
    assert frame.loc["nsys", "ratio"] == pytest.approx(49.4 / 48.5)
    assert frame.loc["nvidia-smi", "low"] == pytest.approx(48.1 / 48.7)
    assert set(frame["provenance"]) == {"recorded, published at EuroMLSys 2023"}

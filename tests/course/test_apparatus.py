"""Apparatus of the labs: hit rates, memory scores, the largest batch, loads, observers, and faults that happen."""

import contextlib
import math

import numpy as np
import pandas as pd
import psutil
import pytest
import torch
from fake_nvml import put_on_path
from memory_formulas import METHODS, PROCESS, PlainStep, estimates, formula, horus_bytes, horus_estimate, score
from processes import wait_for

from labkit.errors import UserError
from labkit.jobs import DlrmJob
from labkit.launch import MODES
from labkit.models import Dlrm, DlrmConfig
from labkit_course.apparatus import (
    FAULTS,
    busy,
    documented_behaviour,
    expected_hit_rate,
    fault_run,
    figure_fault_timeline,
    figure_gain_over_scale,
    figure_knee,
    figure_shares,
    largest_batch,
    memory_held,
    observe,
    observer_effect,
    observers,
    run_fault,
    simulate_hit_rate,
    sweep,
    zipf_shares,
)
from labkit_course.apparatus.fault_run import Client
from labkit_course.apparatus.memory import HEADROOM, tried_sizes
from labkit_course.apparatus.observer_effect import NOBODY, NOBODY_OUTSIDE, Observer
from labkit_course.apparatus.sharding import (
    SIZES,
    Tables,
    fit_transfer,
    measure_placements,
    placements,
    time_exchanges,
)
from labkit_course.lab import from_lab


def test_each_place_has_a_measured_share_with_its_interval_and_a_prediction():
    shares = pd.DataFrame({"share": [0.5, 0.1], "low": [0.4, 0.09], "high": [0.7, 0.12], "predicted": [0.6, 0.3]})
    figure = figure_shares(shares.set_axis(["memory", "disk"]), "Disks are slow")
    measured, predicted = figure.data
    assert (list(measured.x), list(measured.y), list(predicted.x)) == ([0.5, 0.1], ["memory", "disk"], [0.6, 0.3])
    assert list(measured.error_x.array) == pytest.approx([0.2, 0.02]) and predicted.error_x.array is None
    assert measured.mode == predicted.mode == "markers" and figure.layout.title.text == "Disks are slow"


def test_hit_rates_by_hand():
    # a large cache misses each row once
    assert simulate_hit_rate([np.array([1, 1, 2]), np.array([2, 2, 7])], 10, 10) == pytest.approx(1 - 3 / 6)
    # E 4, BL 2: U = 4 (1 - (3/4)^2) = 1.75; with room for both, 1 - 1.75/2; with X = 1, 1 - (1 + 1 * 3/4) / 2
    assert expected_hit_rate(4, 2, 4) == pytest.approx(0.125)
    assert expected_hit_rate(4, 2, 1) == pytest.approx(0.125)
    assert expected_hit_rate(100, 50, 10) == pytest.approx(1 - (10 + 40 * 90 / 100) / 50)


def test_single_lookups_come_near_the_most_popular_rows_and_never_pass_them():
    for exponent in (0.0, 1.1):
        shares = zipf_shares(400, exponent)
        drawn = np.random.default_rng(0).choice(400, (8000, 1), p=shares)
        for slots in (40, 200):
            best = shares[:slots].sum()
            lru, lfu = (simulate_hit_rate(drawn, 400, slots, policy, warm_up=4000) for policy in ("lru", "lfu"))
            # of 4000 draws the rate varies by sqrt(1/4 / 4000) = 0.008; four times that
            assert max(lru, lfu) < best + 0.032
            assert lfu > (best - 0.08 if exponent else best - 0.032)
            assert lru > best - 0.2
            assert exponent == 0 or slots == 200 or lfu > lru


PLAIN = {"kernels": "plain", "precision": "fp32"}


def test_the_dlrm_of_carma_is_predicted_as_carma_says_and_not_so_by_our_formula():
    # workloads/dlrm.model of itu-rad/CARMA: 29,986,283,521 numbers
    assert horus_bytes(5_768, 909_313, 32_768) == 4 * 29_986_283_521
    assert horus_bytes(5_768, 909_313, 32_768) / 2**30 == pytest.approx(111.8, abs=0.1)
    config = DlrmConfig(13, (4, 3, 2), 64, (512, 256, 128, 64), (1024, 512, 256, 1))

    def loss(model):
        return model(torch.empty(32_768, 13), torch.empty(32_768, 3, 1, dtype=torch.int32)).sum()

    job = DlrmJob(batch_size=32_768, optimiser="sgd", lr=0.1)
    step = PlainStep(job, lambda: Dlrm(config), loss, optimisers=lambda model: [], lookups=3 * 32_768)
    # the layers that count differ by a hundredth, and activations are less than a hundredth of the whole
    assert horus_estimate(step) == pytest.approx(4 * 29_986_283_521, rel=1e-3)
    # 1.47 GB were measured there on a GPU, whose context and libraries take some of it
    assert 0.4e9 < sum(formula(step).values()) < 1.47e9


def test_methods_stand_beside_what_was_measured():
    rows = score([("dlrm", {"data": "synthetic-small"} | PLAIN)]).set_index("method")
    assert list(rows.index) == [*METHODS, PROCESS]
    # what operators take while they run is not in it
    assert abs(rows["error_%"]["formula"]) < 33
    assert rows["measured"][PROCESS] > rows["measured"]["formula"]
    # a gradient of every parameter for every sample, and no table's optimiser state
    assert rows["error_%"]["Horus' formula"] > 1000
    assert rows["error_%"]["torch's tracker"] < -10
    with pytest.raises(UserError, match="plain"):
        estimates("dlrm", data="synthetic-small", precision="fp32")


MIB_A_SAMPLE = 64
SCRIPT = f"""
import argparse
import time
import labkit

flags = argparse.ArgumentParser()
flags.add_argument("--batch-size", type=int)
size = flags.parse_args().batch_size
if size == 13:
    raise ValueError("unlucky")
with labkit.Run("made") as run:
    kept = b"x" * (size * {MIB_A_SAMPLE} << 20)
    run.step(1.0, samples=size)
    time.sleep(0.3)
"""


@pytest.fixture
def script(tmp_path):
    (path := tmp_path / "train.py").write_text(SCRIPT)
    return str(path)


@pytest.mark.parametrize("largest", [*range(32, 160, 7), 400, 1000])
def test_doubling_and_halving_come_as_near_as_asked(largest):
    tried = tried_sizes(lambda size: size <= largest, first=32, most=400, step=8)
    found = max(size for size, fits in tried.items() if fits)
    assert found <= min(largest, 400) < found + 8 and max(tried) <= 400
    assert tried_sizes(lambda size: False, first=32, most=400, step=8) == {32: False}


def test_a_batch_is_found_that_the_budget_holds_and_the_next_it_does_not(script):
    least = memory_held(script, batch_size=1)
    assert memory_held(script, batch_size=3) - least == pytest.approx(2 * MIB_A_SAMPLE << 20, rel=0.1)
    # half a sample more than the first: what else a process holds varies
    budget_mib = (least + (MIB_A_SAMPLE << 19)) * HEADROOM // (HEADROOM - 1) >> 20
    assert largest_batch(script, f"cores=1,memory={budget_mib}MiB", first=1, most=2) == {1: True, 2: False}


def test_a_budget_that_holds_none_and_a_job_that_fails_say_so(script):
    with pytest.raises(UserError, match="does not hold a batch of 16: give it more memory"):
        largest_batch(script, "cores=1,memory=512MiB", first=16, most=16)
    with pytest.raises(Exception, match="unlucky"):
        largest_batch(script, "cores=1,memory=512MiB", first=13, most=13)


@pytest.fixture(params=[pytest.param("1", marks=pytest.mark.compiled), "0"], ids=["compiled", "interpreted"])
def small(request, monkeypatch):
    monkeypatch.setenv("LABKIT_COMPILED", request.param)
    monkeypatch.setattr(busy, "COPIED_BYTES", 2**22)  # of 64 KiB the call would take longer than the bytes
    monkeypatch.setattr(busy, "TURN_S", 0.002)
    return request.param


def test_every_load_is_watched_and_only_two_of_them_use_many_bytes_or_operations(small):
    threads = torch.get_num_threads()
    places = np.roll(np.arange(2**12), 1)
    times = pd.DataFrame({name: [0.5, 0.01, 0.01] for name in ("spin", "chase", "copy", "product")})
    frame = busy.watch(loads := busy.loads(places), times, 100.0, 8.0, seconds=0.05).set_index("load")
    assert frame.loc["copy", "gb_per_s"] == loads[2].work()[1] / 0.01 / 1e9, "the median of the rounds"
    assert frame["share_of_bandwidth"].equals(100 * frame["gb_per_s"] / 8)
    assert torch.get_num_threads() == threads
    assert list(frame.index) == ["spin", "chase", "copy", "product"]
    assert ("interpreted" in frame.loc["chase", "what"]) == (small == "0")
    assert (frame["cpu_percent"] > 0).all() and set(frame["provenance"]) == {"measured"}
    assert frame["gflops"].gt(0).tolist() == [False, False, False, True] and frame.loc["spin", "gb_per_s"] == 0
    assert 0 < frame.loc["chase", "gb_per_s"] < frame.loc["copy", "gb_per_s"]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_the_sweep_shows_a_full_utilisation_and_little_activity_with_one_thread():
    frame = sweep([(1, 1), (1024, 1024), (131072, 1024)], 2.0)
    assert frame.loc[0, "gpu_utilisation"] > 50
    active = frame["sm_active"].dropna()
    assert active.empty or active.iloc[0] < 10 < active.iloc[-1]


effects = from_lab("31", "effects")


def made_up(ratios: dict[str, float], noise: float, seed: int = 0) -> pd.DataFrame:
    """Step times of a machine that slows down over the rounds, as machines do."""
    random = np.random.default_rng(seed)
    rows = [
        (name, NOBODY, number, ratio * (1 + number / 5) * math.exp(noise * random.normal()), "measured")
        for number in range(12)
        for name, ratio in {NOBODY: 1.0, **ratios}.items()
    ]
    return pd.DataFrame(rows, columns=["observer", "baseline", "round", "step_time_ms", "provenance"])


def test_a_cost_beyond_noise_is_found_and_drift_is_not_taken_for_it():
    frame = effects(made_up({"dear": 1.2, "free": 1.0}, noise=0.01)).set_index("observer")
    assert frame.loc["dear", "ratio"] == pytest.approx(1.2, rel=0.02) and frame.loc["dear", "low"] > 1.15
    assert frame["verdict"].to_dict() == {"dear": "slower", "free": "cannot tell"}
    rows = [effects(made_up({"x": 1.0}, noise=0.1, seed=seed)).iloc[0] for seed in range(200)]
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
    by = [known[NOBODY], known["labkit's sampler, 100 Hz"], known["torch.profiler"]]
    frame = observe("light", [*by, Observer("one", watching), Observer("absent", why_not="no")], rounds=2, seconds=0.0)
    assert frame.groupby("observer").size().to_dict() == {**{each.name: 2 for each in by}, "one": 2}
    assert watched == ["in", "out"] * 2
    assert set(frame["provenance"]) == {"measured"} and (frame["step_time_ms"] > 0).all()
    assert len(effects(frame)) == 3
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
    pairs = frame.groupby(["observer", "baseline"]).size().to_dict()
    assert pairs == dict.fromkeys([(NOBODY, NOBODY), *((name, NOBODY_OUTSIDE) for name in ("nsys", NOBODY_OUTSIDE))], 2)
    (effect,) = effects(frame).itertuples()
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


def test_a_profiler_writes_its_report_within_the_span(tmp_path):
    known = {each.name: each for each in observers()}
    report = tmp_path / "trace.json"
    step = observer_effect._make_load("light")
    assert observer_effect._step_time_ms(step, known["torch.profiler, stacks"], 2, report=str(report)) > 0
    assert report.stat().st_size > 1000


@pytest.mark.parametrize(
    ("fault", "mode", "status", "reason"),
    [
        ("segfault", "cpu-shared", "killed", "its process was ended by SIGSEGV"),
        ("leak", "cpu-pinned", "out_of_memory", ""),
        ("spin", "cpu-shared", "killed", "its process was ended by SIGKILL"),
        ("kill", "cpu-shared", "killed", "its process was ended by SIGKILL"),
    ],
)
def test_each_fault_ends_its_own_client_as_it_is_told(fault, mode, status, reason):
    report = run_fault(fault, mode, seconds=0.25)
    jobs = report.jobs.set_index("job")
    assert (jobs.status["faulty"], jobs.status["neighbour-1"]) == (status, "alive")
    assert reason in jobs.reason["faulty"]
    assert (report.died, report.left) == (0, 0)
    assert report.steps["at_s"].min() < 0 < report.steps["at_s"].max() and report.rate_ratio("after") > 0
    if FAULTS[fault].hangs:  # it is watched first, and is deaf to SIGTERM
        assert jobs.during["faulty"] == 0 and jobs.during["neighbour-1"] > 0
        assert report.gone_s > 0.2


def test_a_client_that_does_not_start_is_told(monkeypatch):
    monkeypatch.setattr(fault_run, "PROGRAM", "labkit.nowhere")
    with pytest.raises(UserError, match="ended before it was ready: its process ended with status 1"):
        run_fault("kill", "cpu-shared")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("sneeze", "cpu-shared", 1), "fault 'sneeze' is unknown: choose one of exception, segfault"),
        (("kill", "alone", 1), "no job shares the device"),
        (("gpu-access", "cpu-shared", 1), "choose segfault"),
        (("kill", "mpss", 1), "mode 'mpss' is unknown: did you mean 'mps'"),
        (("kill", "mps", 1), "Mode mps"),
        (("kill", "cpu-shared", 0), "neighbours is 0"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_starts(arguments, words, monkeypatch):
    monkeypatch.setattr(fault_run, "SupervisedJobs", lambda *_: pytest.fail("it was started"))
    cpu = fault_run.get_devices()[:1]
    monkeypatch.setattr(fault_run, "get_devices", lambda: cpu)
    fault, mode, neighbours = arguments
    with pytest.raises(UserError, match=words):
        run_fault(fault, mode, neighbours=neighbours)


def test_a_rate_is_of_its_window_and_of_nothing_else():
    client = Client(steps=[(0.0, 0), (1.0, 10), (2.0, 40)])
    assert client.rate(0.0, 1.0) == 10
    assert client.rate(1.5, 2.0) == 30
    assert client.rate(2.0, 3.0) == 0  # it said no more
    assert math.isnan(client.rate(1.0, 1.1))


@pytest.mark.gpu
@pytest.mark.parametrize("fault", ["gpu-access", "gpu-assert"])
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU, and there is none here")
def test_a_fault_in_a_kernel_ends_the_client_that_launched_it(fault):
    report = run_fault(fault, "naive", seconds=0.5)
    faulty = report.jobs.set_index("job").loc["faulty"]
    assert faulty["status"] == "failed"
    assert "CUDA" in faulty["reason"] or "Accelerator" in faulty["reason"]
    assert report.left == 0


def test_what_is_documented_says_where_and_that_it_was_not_run_here():
    frame = documented_behaviour()
    assert set(frame["provenance"]) == {"documented, not run here"}
    assert frame["url"].str.startswith("https://").all()
    assert (frame[["source", "section", "documented", "neighbours"]].map(len) > 1).all(axis=None)
    assert {"naive", "mps", "mig"} <= set(frame["mode"]) <= {*MODES, "any"}
    assert set(frame["fault"]) <= {*FAULTS, "uncorrectable memory error"}


def test_each_client_has_a_line_and_the_finding_has_the_rates():
    steps = pd.DataFrame({"job": ["faulty"] * 4 + ["neighbour-1"] * 4, "at_s": [-0.5, -0.1, 0.5, 1.5] * 2})
    steps = steps.assign(steps_per_s=[10.0, 10.0, 0.0, 0.0, 10.0, 12.0, 5.0, 20.0], provenance="measured")
    figure = figure_fault_timeline(steps, gone_s=1.0)
    assert [trace.name for trace in figure.data] == ["faulty · measured", "neighbour-1 · measured"]
    assert list(figure.data[1].y) == [10.0, 12.0, 5.0, 20.0]
    assert "neighbour-1: 11 steps/s before, 5 until the client was gone, 20 after" in figure.layout.meta["finding"]


def test_the_gain_over_the_scale_passes_ten_where_it_says_and_the_knee_has_a_line_per_way():
    figure = figure_gain_over_scale(a=1e-3, b=1e-6, c=1.0, processes=1.5, seen=(5000, 4.9))
    compiled, processes, seen = figure.data
    at = np.interp(10.0, compiled.y, compiled.x)
    assert at == pytest.approx(10 / (1e-3 - 1e-5), rel=0.1) and set(processes.y) == {1.5}
    assert (list(seen.x), list(seen.y)) == ([5000], [4.9])
    assert "from 10,101 trips on" in figure.layout.meta["finding"]
    loads = pd.DataFrame({"way": ["alone", "batched"] * 2, "planned_per_s": [100, 100, 800, 800]})
    loads = loads.assign(answered_per_s=[100, 100, 400, 790], p50_ms=[4, 8, 1300, 9])
    figure = figure_knee(loads)
    assert [trace.name for trace in figure.data] == ["alone · measured", "batched · measured"]
    assert list(figure.data[1].y) == [8, 9] and "alone 400, batched 790" in figure.layout.meta["finding"]


TABLES = Tables((1000, 10, 500, 400), (1, 40, 2, 3), 8, 64)


def test_tables_go_to_whoever_has_least():
    ways = placements(TABLES, 2, random=2)
    assert ways["in turn"] == (0, 1, 0, 1)
    assert ways["by rows"] == (0, 1, 1, 1)
    assert ways["by lookups"] == (1, 0, 1, 1)
    assert len(ways) == 5


def test_a_start_and_the_cost_of_a_byte_are_found_again():
    times = [1e-4 + 0.5 * size * 2e-9 for size in SIZES]
    found = fit_transfer(SIZES, times, 0.5)
    assert found.start_s == pytest.approx(1e-4, rel=1e-3)
    assert found.byte_s == pytest.approx(2e-9, rel=1e-3)
    assert found.seconds(1e6) == pytest.approx(2.1e-3, rel=1e-3)


def test_processes_exchange_and_the_placements_are_timed():
    assert len(time_exchanges(2, (1024, 2**20))) == 2
    measured = measure_placements(TABLES, {"in turn": (0, 1, 0, 1), "on one": (0, 0, 0, 0)}, 2)
    assert np.all(np.array(list(measured.values())) > 0)

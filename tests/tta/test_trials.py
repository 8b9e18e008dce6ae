"""The steady state of made-up runs, and the means of several."""

import math
import time

import numpy as np
import pytest
from made_up import new_run
from scipy import stats

from labkit.runs import TELEMETRY
from labkit.runs.parts import PartWriter
from labkit.tta import trial_means, trial_table

S, BEGIN = 10**9, 1_700_000_000
TRIAL = {"number": 2, "torch_name": "cpu", "idle_power_w": 20.0, "cool_down": "cooled down in 5 s"}


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run of steps of 100 samples, each of so many seconds; after the 20th, 10 s of evaluation. 60 W; then 30 W."""

    def make(steps_s, *, name="loss", samples=100, power_w=60.0, trial=TRIAL, **train):
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(BEGIN + 3))
        monkeypatch.setattr("labkit.runs.writer.timestamp", lambda: stamp)
        config = {"job": "t", "train": train, "trial": trial}
        writer = new_run(tmp_path, config=config, devices=[{"torch_name": "cpu"}])
        writer.event("began", clock_s=3.0)  # a step of 3 s was taken by then
        ends_s = np.cumsum([0.0, *steps_s])
        for step, train_s in enumerate(ends_s[1:], start=1):
            point = {"wall_s": train_s + 10 * (step > 20), "train_s": train_s, "samples": samples * step}
            writer.metric(step=step, name=name, value=1.0, **point)
        until = int(ends_s[-1]) + 12
        rows = PartWriter(writer.folder / "telemetry", TELEMETRY)
        evaluated_s = ends_s[:21][-1]
        for half in range(2 * until if power_w else 0):
            training_s = half / 2 - np.clip(half / 2 - evaluated_s, 0, 10)
            row = {"device": "host", "scope": "host", "pid": 1, "unit": "J", "source": "RAPL", "note": None}
            joules = power_w * training_s + 30 * (half / 2 - training_s)
            rows.append(row | {"time_ns": BEGIN * S + half * S // 2, "counter": "cpu_energy_0", "value": joules})
        rows.flush()
        writer.finish("done", {})
        return writer.folder

    return make


def test_the_warm_up_and_the_evaluation_do_not_count(run):
    """Ten steps of 2 s, then of 1 s: pieces of 3.5 s, of which the first with a slow step no more is the seventh."""
    (row,) = trial_table([run([2.0] * 10 + [1.0] * 50, power_limit_w=150.0)]).to_dict("records")
    assert row["warm_up_s"] == 20 and row["steady_s"] == 50
    assert row["samples_per_s"] == pytest.approx(100) and row["power_w"] == pytest.approx(60)
    assert (row["energy_per_sample_j"], row["above_idle_j"]) == (pytest.approx(0.6), pytest.approx(0.4))
    assert (row["power_limit_w"], row["trial"]) == (150, 2)
    assert "cooled down in 5 s" in row["note"] and "all CPU packages" in row["note"]


SAMPLES, ENERGY, ABOVE = "samples_per_s", "energy_per_sample_j", "above_idle_j"
SETTLED = [1.0] * 30


@pytest.mark.parametrize(
    ("steps_s", "given", "known", "unknown", "why"),
    [
        ([0.5] * 15, {}, {}, SAMPLES, "of 10 pieces of 1 s it has 8"),
        (1 / np.linspace(0.5, 4, 100), {}, {}, SAMPLES, "its samples/s never settle"),
        ([], {}, {}, SAMPLES, "of 10 pieces of 1 s it has 0"),
        (SETTLED, {"power_w": None}, {SAMPLES: 100}, "power_w", "not measurable"),
        (SETTLED, {"name": "steps", "samples": 0}, {"power_w": 60}, ENERGY, "counts no samples"),
        # idle power of another device is not taken off
        (SETTLED, {"trial": TRIAL | {"torch_name": "cuda:0"}}, {ENERGY: 0.6}, ABOVE, ""),
    ],
)
def test_what_a_trial_does_not_show_is_no_number_and_its_note_says_why(run, steps_s, given, known, unknown, why):
    (row,) = trial_table([run(steps_s, **given)]).to_dict("records")
    assert {name: row[name] for name in known} == pytest.approx(known)
    assert math.isnan(row[unknown]) and why in row["note"]


def test_means_of_each_limit_have_students_interval(run):
    folders = [run([1.0] * 30, power_w=watts, power_limit_w=limit) for limit in (100, 200) for watts in (50, 60, 70)]
    means = trial_means(trial_table(folders)).set_index("power_limit_w")
    low, high = stats.t.interval(0.95, 2, loc=0.6, scale=0.1 / math.sqrt(3))
    for limit in (100, 200):
        row = means.loc[limit]
        assert (row["trials"], row["energy_per_sample_j"]) == (3, pytest.approx(0.6))
        assert (row["energy_per_sample_j_low"], row["energy_per_sample_j_high"]) == pytest.approx((low, high))
    one = trial_means(trial_table(folders[:1]))
    assert math.isnan(one["power_w_low"][0]) and one["power_w"][0] == pytest.approx(50)

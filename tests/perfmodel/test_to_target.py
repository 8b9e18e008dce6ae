"""What a target takes: a predicted step, and samples that runs have needed."""

import math

import pandas as pd
import pytest
from made_card import made_card, product

from labkit.errors import UserError
from labkit.perfmodel.predict import Need, predict_step, samples_to_target, to_target
from labkit.tracking import Target

TARGET = Target.parse("auc >= 0.7")
ROWS = [(256, 1000.0), (1024, 4000.0)]


@pytest.fixture
def measured(monkeypatch):
    """Two batch sizes whose runs needed 1,000 and 4,000 samples."""
    table = pd.DataFrame(
        [
            {"batch_size": size, "need": need, "need_low": need / 2, "need_high": math.inf, "time_s": 1.0, "runs": 3,
             "reached": 2}
            for size, need in ROWS
        ]
    )  # fmt: skip
    monkeypatch.setattr("labkit.tta.curves", lambda folders, **_: pd.DataFrame({"value": [0.6, 0.65]}))
    monkeypatch.setattr("labkit.tta.by_batch_size", lambda curves, runs, target: table)
    return table


RUNS = pd.DataFrame({"run": [1], "folder": ["runs/1"]})


def test_what_was_measured_at_this_batch_counts(measured):
    need = samples_to_target(RUNS, TARGET, 256)
    assert (need.samples, need.low, need.high) == (1000.0, 500.0, 2000.0)
    assert "measured, by 2 of 3 runs at batch 256" in need.how


def test_between_two_batches_it_lies_on_a_line_of_logarithms(measured):
    need = samples_to_target(RUNS, TARGET, 512)
    assert need.samples == pytest.approx(2000.0)
    assert "between those of 256 and 1,024" in need.how


def test_beyond_all_batches_nobody_knows(measured):
    with pytest.raises(UserError, match="only at 256, 1,024"):
        samples_to_target(RUNS, TARGET, 4096)


def test_a_target_that_none_reached_names_the_best(measured):
    measured["need"] = math.inf
    with pytest.raises(UserError, match=r"never reached.*their best is 0\.65"):
        samples_to_target(RUNS, TARGET, 256)


def test_seconds_joules_and_dollars_go_with_the_samples():
    step = predict_step([product(64, 64, 64)], made_card())
    once, twice = (to_target(step, 100, Need(n, n, n, ""), "cloud-cpu-2") for n in (1e4, 2e4))
    assert once.seconds == pytest.approx(100 * step.step_ms / 1e3)
    assert twice.seconds == pytest.approx(2 * once.seconds)
    assert twice.cost_usd == pytest.approx(2 * once.cost_usd)
    assert once.low_s <= once.seconds <= once.high_s
    assert to_target(step, 100, Need(1.0, 1.0, 1.0, ""), None).cost_usd is None

import math

import pytest

from labkit.tracking.time_left import time_left_s

TRAIN = {"max_epochs": 10, "max_seconds": None, "target": None, "target_metric": "auc", "higher_is_better": True}


def config(**train) -> dict:
    return {"train": TRAIN | train, "data": {"train_samples": 100}}


def test_the_samples_left_take_as_long_each_as_those_before():
    assert time_left_s(config(), 20.0, 400, []) == pytest.approx(30.0)


def test_a_limit_in_seconds_counts_where_it_is_nearer():
    assert time_left_s(config(max_seconds=25.0), 20.0, 400, []) == pytest.approx(5.0)


def test_a_metric_that_closes_half_its_distance_each_second_arrives_when_it_would():
    evaluations = [(float(t), 1 - 0.5 * 0.5**t) for t in range(3)]
    expected = math.log2(0.5 / 0.05) - 2
    assert time_left_s(config(target=0.95), 2.0, 1, evaluations) == pytest.approx(expected)


def test_nothing_is_guessed_before_the_first_sample():
    assert time_left_s(config(), 0.0, 0, []) is None


def test_a_metric_that_gets_worse_promises_nothing():
    assert time_left_s(config(target=0.95), 2.0, 400, [(1.0, 0.7), (2.0, 0.6)]) == pytest.approx(3.0)


def test_of_a_metric_without_a_bound_nothing_is_promised():
    evaluations = [(1.0, 10.0), (2.0, 20.0)]
    assert time_left_s(config(target=30.0, target_metric="score", max_epochs=None), 2.0, 1, evaluations) is None


def test_an_error_closes_in_on_zero():
    evaluations = [(float(t), 8 * 0.5**t) for t in range(3)]
    train = {"target": 1.0, "target_metric": "perplexity", "higher_is_better": False}
    assert time_left_s(config(**train), 2.0, 1, evaluations) == pytest.approx(1.0)

import pytest

from labkit.tracking.time_left import time_left_s

TRAIN = {"max_epochs": 10, "max_seconds": None, "target": None, "target_metric": "auc", "higher_is_better": True}
HALVES = [(float(t), 0.5**t) for t in range(3)]
"""An error that halves each second."""
PERPLEXITY = {"target_metric": "perplexity", "higher_is_better": False}


@pytest.mark.parametrize(
    ("train", "at", "evaluations", "expected"),
    [
        ({}, (20.0, 400), [], 30.0),  # the samples left take as long each as those before
        ({"max_seconds": 25.0}, (20.0, 400), [], 5.0),
        ({"target": 1 - 1 / 64}, (2.0, 1), [(t, 1 - value) for t, value in HALVES], 4.0),
        ({"target": 1 / 8, **PERPLEXITY}, (2.0, 1), HALVES, 1.0),
        ({}, (0.0, 0), [], None),
        ({"target": 0.95}, (2.0, 400), [(1.0, 0.7), (2.0, 0.6)], 3.0),  # what gets worse promises nothing
        ({"target": 30.0, "target_metric": "score", "max_epochs": None}, (2.0, 1), [(1.0, 10.0), (2.0, 20.0)], None),
    ],
)
def test_the_nearest_limit_or_the_target_that_comes_closer_says_how_long(train, at, evaluations, expected):
    config = {"train": TRAIN | train, "data": {"train_samples": 100}}
    found = time_left_s(config, *at, evaluations)
    assert found == (expected if expected is None else pytest.approx(expected))

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from labkit.tta import survival, survival_curve, time_against_target
from labkit.tta.survival import median_time


def hits(times, reached, budget="all-cores"):
    """Synthetic crossings: `times` are crossings or, where not reached, the last evaluation."""
    times, reached = np.asarray(times, float), np.asarray(reached, bool)
    return pd.DataFrame(
        {
            "job": "dlrm",
            "budget": budget,
            "provenance": "measured",
            "run": [f"{budget}-{number}" for number in range(len(times))],
            "seed": range(len(times)),
            "reached": reached,
            "time_to_target_s": np.where(reached, times, np.nan),
            "samples_to_target": np.where(reached, times * 100, np.nan),
            "last_time_s": times,
            "last_samples": times * 100,
        }
    )


@pytest.mark.parametrize("times", [[4.0], [3.0, 5.0], [1.0, 7.0, 2.0], [4.0, 1.0, 2.0, 9.0], [1, 2, 3, 4, 5, 60]])
def test_without_censoring_the_median_is_the_ordinary_one(times):
    assert median_time(np.ones(len(times)), np.array(times))[0] == np.median(times)


def test_the_curve_itself_gives_the_ordinary_median_of_two_runs():
    # median_time takes a short cut for few uncensored runs: a censored third run makes it fit the curve
    assert median_time(np.array([1, 1, 0]), np.array([3.0, 5.0, 1.0]))[0] == 4.0


def test_a_textbook_estimate_is_reproduced():
    # 6-mercaptopurine arm of Freireich et al. (1963), as in Kalbfleisch and Prentice (2002), table 1.1 and
    # figure 1.4: the estimate at 10 weeks is 0.753, at 23 weeks 0.448; R's survfit gives the median 23.
    weeks = [6, 6, 6, 6, 7, 9, 10, 10, 11, 13, 16, 17, 19, 20, 22, 23, 25, 32, 32, 34, 35]
    event = [1, 1, 1, 0, 1, 0, 1, 0, 0, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0]
    curve = survival_curve(np.array(event), np.array(weeks)).set_index("time")
    assert curve.loc[10, "waiting"] == pytest.approx(0.753, abs=5e-4)
    assert curve.loc[23, "waiting"] == pytest.approx(0.448, abs=5e-4)
    # 9 of 21 events: more than half are censored, and labkit reports no median from a minority
    assert median_time(np.array(event), np.array(weeks))[0] == np.inf


def test_censored_runs_raise_the_median_above_that_of_the_lucky_ones():
    table = hits([1, 2, 3, 10, 10], [1, 1, 1, 0, 0])
    (row,) = survival(table).itertuples()
    assert row.median == 3.0 > table["time_to_target_s"].median()
    assert (row.runs, row.reached, row.fastest, row.slowest) == (5, 3, 1.0, 3.0)


def test_a_median_is_not_reached_when_more_than_half_are_censored():
    for censored_at in (10.0, 0.5):  # late, and so early that the estimate itself would pass one half
        (row,) = survival(hits([2, censored_at, censored_at], [1, 0, 0])).itertuples()
        assert row.median == np.inf and np.isnan(row.low)


def test_a_series_in_which_nothing_was_reached_stays_in_the_table():
    (row,) = survival(hits([4, 5], [0, 0])).itertuples()
    assert (row.runs, row.reached, row.median) == (2, 0, np.inf) and np.isnan(row.fastest)


def test_an_interval_is_given_from_five_runs_on():
    assert np.isnan(survival(hits([1, 2, 3, 4], [1] * 4))["low"].item())
    (row,) = survival(hits([1, 2, 3, 4, 5], [1] * 5)).itertuples()
    assert row.low < row.median < row.high


def test_samples_to_target_have_a_median_too():
    assert survival(hits([2, 4, 9], [1, 1, 0]), quantity="samples")["median"].item() == 400


def test_harder_targets_take_longer_until_they_are_not_reached():
    values = np.linspace(0.5, 0.8, 7)
    one = pd.DataFrame({"wall_s": np.arange(1.0, 8), "samples": np.arange(1, 8) * 10, "value": values})
    frame = one.assign(run="a", job="dlrm", budget="gpu", provenance="measured", seed=0, train_s=one["wall_s"])
    times = time_against_target(frame, np.array([0.5, 0.6, 0.7, 0.9]), higher_is_better=True)
    assert times["median"].tolist() == [1.0, 3.0, 5.0, np.inf]

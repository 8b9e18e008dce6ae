from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from labkit.tta import band


def straight(runs, *, budget="all-cores", ends=None):
    """Synthetic runs that rise from 0 to 1 in a straight line, run i within `runs[i]` seconds."""
    frames = []
    for number, duration in enumerate(runs):
        end = 1.0 if ends is None else ends[number]
        frames.append(
            pd.DataFrame(
                {
                    "run": f"{budget}-{number}",
                    "job": "dlrm",
                    "budget": budget,
                    "provenance": "measured",
                    "wall_s": [0.0, duration * end / 2, duration * end],
                    "value": [0.0, end / 2, end],
                }
            )
        )
    return pd.concat(frames)


def test_of_two_runs_the_band_is_their_range_and_says_so():
    bands = band(straight([10, 20]), higher_is_better=True, levels=np.array([0.2, 0.8]))
    assert bands["low"].tolist() == pytest.approx([2, 8]) and bands["high"].tolist() == pytest.approx([4, 16])
    assert set(bands["kind"]) == {"range of 2 seeds"}


def test_one_run_has_no_band():
    assert band(straight([10]), higher_is_better=True).empty


def test_the_band_ends_where_a_run_stops_short():
    bands = band(straight([10, 20], ends=[1.0, 0.5]), higher_is_better=True, levels=np.array([0.4, 0.5, 0.6]))
    assert bands["level"].tolist() == [0.4, 0.5]


def test_a_run_that_stops_first_does_not_bend_the_band():
    whole = band(straight([10, 20]), higher_is_better=True, levels=np.array([0.3]))
    cut = band(straight([10, 20], ends=[0.6, 1.0]), higher_is_better=True, levels=np.array([0.3]))
    assert whole["low"].item() == pytest.approx(cut["low"].item())


def test_the_bootstrap_is_repeatable_and_follows_its_seed():
    runs = straight(np.random.default_rng(1).lognormal(2, 0.5, 12))
    # few resamples: with many, two seeds may well agree on a percentile of so few runs
    first, again = (band(runs, higher_is_better=True, seed=3, resamples=20) for _ in range(2))
    pd.testing.assert_frame_equal(first, again)
    assert not first.equals(band(runs, higher_is_better=True, seed=4, resamples=20))


def test_another_budget_leaves_a_bootstrap_band_as_it_was():
    runs = straight(np.random.default_rng(1).lognormal(2, 0.5, 12))
    other = straight([5, 6, 7, 8, 9], budget="one-core")
    levels = np.linspace(0.1, 1, 5)
    both = band(pd.concat([other, runs]), higher_is_better=True, levels=levels)
    alone = band(runs, higher_is_better=True, levels=levels)
    assert both[both["budget"] == "all-cores"]["low"].tolist() == alone["low"].tolist()


def test_the_bootstrap_band_covers_the_median_as_often_as_it_says():
    # 95 % nominal; of 60 sets 57 are expected. Percentile bands of a median of 15 are a little narrow, and
    # the binomial spread is ±1.7: fewer than 48 would mean that something else is drawn.
    generator = np.random.default_rng(0)
    covered = 0
    for _ in range(60):
        runs = straight(generator.lognormal(2, 0.5, 15))
        (row,) = band(runs, higher_is_better=True, levels=np.array([1.0]), resamples=400).itertuples()
        covered += row.low <= np.exp(2) <= row.high
    assert covered >= 48


def test_a_falling_metric_has_a_band_too():
    falling = straight([10, 20]).assign(value=lambda frame: 1 - frame["value"])
    bands = band(falling, higher_is_better=False, levels=np.array([0.8]))
    assert (bands["low"].item(), bands["high"].item()) == pytest.approx((2, 4))


def test_a_plateau_does_not_bring_the_rise_after_it_forward():
    frame = straight([1]).iloc[:0]
    for run, stretch in (("a", 1.0), ("b", 2.0)):
        wall_s = stretch * np.array([1.0, 2, 3, 4])
        one = pd.DataFrame({"wall_s": wall_s, "value": [0.5, 0.5, 0.5, 0.6]})
        frame = pd.concat([frame, one.assign(run=run, job="dlrm", budget="gpu", provenance="measured")])
    bands = band(frame, higher_is_better=True, levels=np.array([0.5, 0.51]))
    assert bands["low"].tolist() == pytest.approx([1.0, 3.1])

"""Time to a target when not every run gets there: survival, and the expected time with restarts."""

import numpy as np
import pytest
from made_up import arriving, made_up, together
from statistics_of_time import CASES, coverage, draw

from labkit.tta import band, survival, survival_curve
from labkit.tta.estimators import expected_to_target, median_time, success_interval

INF = np.inf


def row_of(times, **more):
    (row,) = survival(*arriving(times, **more), 0.7).itertuples()
    return row


def test_a_textbook_estimate_is_reproduced():
    # 6-mercaptopurine arm of Freireich et al. (1963), as in Kalbfleisch and Prentice (2002), table 1.1 and
    # figure 1.4: the estimate at 10 weeks is 0.753, at 23 weeks 0.448; R's survfit gives the median 23.
    weeks = [6, 6, 6, 6, 7, 9, 10, 10, 11, 13, 16, 17, 19, 20, 22, 23, 25, 32, 32, 34, 35]
    event = [1, 1, 1, 0, 1, 0, 1, 0, 0, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0]
    curve = survival_curve(np.array(event), np.array(weeks)).set_index("time")
    assert curve.loc[10, "waiting"] == pytest.approx(0.753, abs=5e-4)
    assert curve.loc[23, "waiting"] == pytest.approx(0.448, abs=5e-4)
    assert median_time(np.array(event), np.array(weeks))[0] == 23
    for times in ([4.0], [3.0, 5.0], [1.0, 7.0, 2.0], [4.0, 1.0, 2.0, 9.0], [1, 2, 3, 4, 5, 60]):
        assert median_time(np.ones(len(times)), np.array(times))[0] == np.median(times), "where all runs arrive"


def test_a_run_that_failed_waits_for_ever_and_one_that_was_cut_off_does_not():
    # two of five diverge after 3 s: half are there when the last of the others arrives, not when the middle one does
    assert row_of([INF, INF, 10, 11, 12]).median == 12
    assert row_of([-3, -3, 10, 11, 12]).median == 11
    assert row_of([INF, INF, INF, 10, 11]).median == INF
    assert row_of([INF, 10]).median == INF, "half of the runs is no majority"

    row = row_of([-3, -4, -5, -6, 10, 11, 12])
    assert (row.reached, row.failed, row.censored, row.median, row.expected) == (3, 0, 4, 11, 11), "and not never"
    row = row_of([INF, -4])
    assert (row.failed, row.censored) == (1, 1)
    assert (row.runs, row.reached, row.median, row.expected) == (2, 0, INF, INF) and np.isnan(row.expected_low)


def test_fewer_than_five_runs_have_a_range_and_no_interval():
    row = row_of([4, 1, 2])
    assert np.isnan(row.level) and (row.low, row.high) == (1, 4)
    assert row_of([4, 1, INF, 2]).high == INF
    assert np.isnan(row_of([-1, -1, 10, 11, 12]).level), "three are left when the first arrives"


@pytest.mark.parametrize(
    ("runs", "low", "high", "level"), [(5, 1, 5, 0.9375), (6, 1, 6, 0.95), (10, 2, 9, 0.95), (12, 3, 10, 0.95)]
)
def test_without_censoring_the_interval_is_that_of_the_sign_test(runs, low, high, level):
    row = row_of(range(1, runs + 1))
    assert (row.low, row.high, row.level) == (low, high, level)


def test_samples_have_a_median_too_and_a_run_that_watched_another_metric_says_nothing_about_this_one():
    curves, runs = arriving([2, 4, 9])
    assert survival(curves, runs, 0.7, x="samples")["median"].item() == 400
    curves, runs = together(made_up([[0.5, 0.8]]), made_up([[]], budget="one-core", metric="cer"))
    assert survival(curves, runs, 0.7)["budget"].tolist() == ["all-cores"]


def test_harder_targets_never_take_less_whatever_became_of_the_runs():
    random, steps = np.random.default_rng(0), 0
    for _ in range(40):
        count = int(random.integers(1, 9))
        values = [random.integers(50, 80, random.integers(0, 9)) / 100 for _ in range(count)]
        ends = random.choice(["failed", "censored"], count)
        curves, runs = made_up(values, unreached=ends, every_s=random.uniform(1, 4, count))
        times = survival(curves, runs, np.arange(0.48, 0.82, 0.005))
        for name in ("median", "expected"):
            assert (times[name].to_numpy()[1:] >= times[name].to_numpy()[:-1] - 1e-9).all()
        alone = survival(curves, runs, 0.65)
        assert alone["median"].item() == survival(curves, runs, [0.5, 0.65])["median"].iloc[1]
        steps += times["median"].nunique() - 1
    assert steps > 80, "the curves are not flat"


def test_the_band_is_the_interval_at_each_level_and_ends_where_a_run_stops_short():
    curves, runs = made_up([[0.3, 0.5, 0.7], [0.3, 0.5]], every_s=[1.0, 2.0])
    bands = band(survival(curves, runs, [0.2, 0.5, 0.6]))
    assert bands["level"].tolist() == [0.2, 0.5]
    assert bands["low"].tolist() == [1, 2] and bands["high"].tolist() == [2, 4]
    assert set(bands["kind"]) == {"range of 2 runs"}
    assert band(survival(*arriving([10]), 0.7)).empty, "one run has no band"
    (row,) = band(survival(*arriving(range(1, 7)), 0.7)).itertuples()
    assert row.kind == "95 % interval of the median of 6 runs"


def expected(success, failure=(), cut_off=()):
    spent = np.array([*success, *failure, *cut_off], float)
    kind = np.repeat([0, 1, 2], [len(success), len(failure), len(cut_off)])
    return expected_to_target(spent, kind == 0, kind == 1)


def test_it_is_all_time_spent_over_the_successes():
    value, low, high = expected([10, 11, 12], failure=[3, 3])
    assert value == pytest.approx(39 / 3) and low < value < high
    assert expected([], failure=[3, 4, 5])[0] == np.inf
    for few in (expected([10, 11]), expected([10], failure=[3, 3]), expected([10, 11], cut_off=[3])):
        assert np.isfinite(few[0]) and np.isnan(few[1]) and np.isnan(few[2]), "no interval of so few"


def test_a_run_that_was_cut_off_goes_on_as_those_that_outlasted_it_else_it_is_a_failure():
    assert expected([10, 11, 12], cut_off=[3, 4, 5, 6])[0] == pytest.approx(11)
    assert expected([10], failure=[30], cut_off=[20])[0] == pytest.approx(10 + 2 * 30)
    assert expected([10, 12], cut_off=[20])[0] == pytest.approx(42 / 2)


def test_the_share_of_successes_has_open_ends_where_all_or_none_arrive():
    low, high = success_interval(np.array([0, 3, 2]), 3)
    assert low[0] == 0 and high[1] == 1 and 0 < low[2] < 2 / 3 < high[2] < 1
    assert success_interval(np.array(2), 3, 1)[1] == 1


@pytest.mark.parametrize("case", CASES[::7], ids=str)
def test_intervals_cover_what_they_say_by_simulation(case):
    # 400 draws: two standard errors of 95 % are 2.2 points, so 90 % less those
    for name, (covered, given) in coverage(case, draws=400, seed=1).items():
        assert given == 0 or covered >= 0.88, f"{name}: {covered:.1%} of those given in {given:.0%}"


@pytest.mark.parametrize("case", [case for case in CASES if case.runs == 10][::5], ids=str)
def test_the_expected_time_is_that_of_the_simulated_policy(case):
    # one large experiment instead of many small ones: within 2 % of the truth, which is known
    drawn = draw(case._replace(runs=40_000), draws=1, seed=2)
    value, _, _ = expected_to_target(drawn.spent, drawn.reached, drawn.failed)
    assert value[0] == pytest.approx(drawn.expected, rel=0.02)

"""What reaching a target takes when failures are started anew, and how often the intervals hold: made-up runs."""

import numpy as np
import pytest
from statistics_of_time import CASES, coverage, draw

from labkit.tta.estimators import expected_to_target, success_interval


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

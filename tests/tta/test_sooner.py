import numpy as np
import pandas as pd
import pytest

from labkit.tta import speed_up


def hits(times, seeds=None):
    """Crossings of runs that arrived after these seconds; one of inf did not."""
    times = np.asarray(times, float)
    seeds = range(len(times)) if seeds is None else seeds
    runs = [f"run {number}" for number in range(len(times))]
    return pd.DataFrame({"run": runs, "seed": seeds, "reached": np.isfinite(times), "time_to_target_s": times})


def test_pairs_of_seeds_give_the_ratio_of_geometric_means_and_students_interval():
    sooner = speed_up(hits([1.0, 2.0, 4.0]), than=hits([2.0, 4.4, 7.6]))
    logs = np.log([2.0, 2.2, 1.9])
    half = 4.302653 * logs.std(ddof=1) / np.sqrt(3)  # t of two degrees of freedom
    assert (sooner.ratio, sooner.low, sooner.high) == pytest.approx(np.exp(logs.mean() + half * np.array([0, -1, 1])))
    assert sooner.low > 1 and sooner.seeds == 3


def test_a_seed_run_twice_counts_once():
    assert speed_up(hits([1.0, 1.1, 1.2], [0, 0, 1]), than=hits([2.0, 2.1, 2.2], [0, 1, 2])) is None
    twice = speed_up(hits([1.0, 1.0, 2.0, 4.0], [0, 0, 1, 2]), than=hits([2.0, 4.4, 7.6]))
    assert twice == speed_up(hits([1.0, 2.0, 4.0]), than=hits([2.0, 4.4, 7.6]))


def test_runs_without_a_seed_are_apart_but_never_paired():
    none = [None] * 4
    unpaired = speed_up(hits([1.0, 1.1, 1.2, 1.3], none), than=hits([2.0, 2.2, 2.4, 2.6], none))
    assert unpaired.seeds == 4 and unpaired.ratio == pytest.approx(2) and unpaired.low > 1
    from scipy.stats import ttest_ind

    logs = np.log([2.0, 2.2, 2.4, 2.6]), np.log([1.0, 1.1, 1.2, 1.3])
    interval = ttest_ind(*logs, equal_var=False).confidence_interval()
    assert (unpaired.low, unpaired.high) == pytest.approx((np.exp(interval.low), np.exp(interval.high)))


def test_nothing_is_claimed_where_a_run_did_not_arrive_and_little_where_seeds_lie_apart():
    assert speed_up(hits([1.0, 1.1, 1.2, np.inf]), than=hits([2.0, 2.2, 2.4])) is None
    assert speed_up(hits([1.0, 1.1, 1.2]), than=hits([2.0, 2.2, 2.4, np.inf])) is None
    assert speed_up(hits([1.0, 2.0, 4.0]), than=hits([2.0, 1.5, 5.0])).low < 1
    fast, slow = hits([1.0, 1.1, 1.05]), hits([1.3, 1.5, 1.6])
    assert speed_up(fast, than=slow).low > speed_up(fast, than=slow, among=5).low, "picked among several"

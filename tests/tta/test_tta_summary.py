import numpy as np
import pytest
from made_up import arriving, made_up, together

from labkit.hardware import load_tiers
from labkit.tta import cost_usd, default_target, summary, with_cost

PRICED = next(tier for tier in load_tiers().values() if tier.rental_price_usd_per_h is not None)
UNPRICED = next(tier for tier in load_tiers().values() if tier.rental_price_usd_per_h is None)


def test_a_row_a_budget_with_what_the_target_took():
    curves, runs = made_up([[0.6, 0.7], [0.5, 0.6, 0.8]], energy_j=50.0, tier=PRICED.name)
    (row,) = summary(curves, runs).itertuples()
    assert (row.runs, row.reached, row.time_median_s, row.time_low_s, row.time_high_s) == (2, 2, 25.0, 20.0, 30.0)
    assert np.isnan(row.time_level) and row.expected_s == 25.0
    assert (row.samples_median, row.samples_per_s, row.energy_j) == (2500, 100.5, 50.0)
    assert row.peak_memory_bytes == 2 * 2**30
    assert row.peak_gpu_memory_bytes == 2 * 2**31
    assert row.cost_usd == pytest.approx(25 / 3600 * PRICED.rental_price_usd_per_h)


def test_failures_are_paid_for():
    (row,) = summary(*arriving([np.inf, np.inf, 10, 11, 12], tier=PRICED.name)).itertuples()
    assert (row.reached, row.failed, row.time_median_s) == (3, 2, 12)
    assert row.expected_s == pytest.approx(39 / 3) and row.expected_low_s < 13 < row.expected_high_s
    assert row.cost_usd == pytest.approx(13 / 3600 * PRICED.rental_price_usd_per_h)


def test_each_job_is_held_to_its_own_target_and_direction():
    speech = made_up([[0.9, 0.2, 0.05]], job="speech", metric="cer", target=0.1)
    table = summary(*together(made_up([[0.6, 0.8]]), speech)).set_index("job")
    assert table.loc["dlrm", "time_median_s"] == 20 and table.loc["speech", "time_median_s"] == 30


def test_a_run_without_an_evaluation_counts_and_did_not_reach_the_target():
    (row,) = summary(*made_up([[0.8], []])).itertuples()
    assert (row.runs, row.reached, row.failed, row.expected_s) == (2, 1, 1, 11.0)
    (row,) = summary(*made_up([[0.8], []], unreached="censored")).itertuples()
    assert (row.runs, row.reached, row.censored, row.time_median_s) == (2, 1, 1, 10.0)
    (row,) = summary(*made_up([[], []])).itertuples()
    assert (row.runs, row.reached, row.time_median_s, row.expected_s) == (2, 0, np.inf, np.inf)


def test_a_row_says_how_many_times_as_soon_the_fastest_was_and_in_what_they_differ():
    fast = arriving([1.0, 1.1, 1.2], settings={"budget": "all-cores", "batch_size": 64, "precision": "fp32"})
    slow = {"budget": "slow", "settings": {"budget": "all-cores", "batch_size": 256, "precision": "bf16"}}
    table = summary(*together(fast, arriving([2.0, 2.3, 2.2], **slow))).set_index("budget")
    assert table.loc["slow", "speed_up_low"] > 1 and table.loc["slow", "speed_up_seeds"] == 3
    assert table.loc["slow", "differs_in"] == ("batch_size", "precision")
    assert np.isnan(table.loc["slow", "energy_j"]) and table.loc["slow", "energy_note"] == "no counter here"
    assert np.isnan(table.loc["all-cores", "speed_up"]) and table.loc["all-cores", "differs_in"] == ()


def test_an_hour_costs_the_price_of_an_hour_and_what_has_none_says_why():
    assert cost_usd(3600, PRICED.name).value_usd == pytest.approx(PRICED.rental_price_usd_per_h)
    curves, _ = made_up([[0.5] * 360], tier=PRICED.name)
    assert with_cost(curves)["cost_usd"].iloc[-1] == pytest.approx(PRICED.rental_price_usd_per_h)
    for tier, why in ((UNPRICED.name, UNPRICED.name), (None, "no tier"), ("abacus", "abacus")):
        cost = cost_usd(3600, tier)
        assert cost.value_usd is None and why in cost.note
    assert cost_usd(np.inf, PRICED.name).value_usd is None, "it was not reached"


def test_without_a_given_target_it_is_what_every_run_reached():
    curves, runs = made_up([[0.6, 0.9], [0.8, 0.7]], target=np.nan)
    assert default_target(curves, runs) == 0.8
    curves, runs = made_up([[0.6, 0.1], [0.3, 0.4]], target=np.nan, metric="cer")
    assert default_target(curves, runs) == 0.3

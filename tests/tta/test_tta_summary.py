from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from labkit.hardware.tiers import load_tiers
from labkit.tta import cost_usd, default_target, summary, with_cost

PRICED = next(tier for tier in load_tiers().values() if tier.rental_price_usd_per_h is not None)
UNPRICED = next(tier for tier in load_tiers().values() if tier.rental_price_usd_per_h is None)


def make_runs(*, job="dlrm", budget="all-cores", metric="auc", target=0.7, curves=(), tier=None, energy_j=np.nan):
    """Synthetic runs, one for each list of values, evaluated every 10 wall seconds."""
    rows, frames = [], []
    for seed, values in enumerate(curves):
        run = f"{job}-{budget}-{seed}"
        shared = {
            "run": run,
            "job": job,
            "budget": budget,
            "seed": seed,
            "provenance": "measured",
            "tier": tier,
        }
        rows.append(
            shared
            | {
                "metric": metric,
                "higher_is_better": None,
                "target": target,
                "status": "done",
                "samples_per_s": 100.0 + seed,
                "peak_memory_bytes": 2.0**30 * (1 + seed),
                "peak_gpu_memory_bytes": 2.0**31 * (1 + seed),
                "energy_j": energy_j,
                "energy_note": None if np.isfinite(energy_j) else "no counter here",
            }
        )
        wall_s = np.arange(1, len(values) + 1) * 10.0
        frames.append(
            pd.DataFrame({"wall_s": wall_s, "train_s": wall_s / 2, "samples": wall_s * 100, "value": values}).assign(
                **shared, metric=metric
            )
        )
    return pd.concat(frames, ignore_index=True), pd.DataFrame(rows)


def test_a_row_a_budget_with_what_the_target_took():
    curves, runs = make_runs(curves=[[0.6, 0.7], [0.5, 0.6, 0.8]], energy_j=50.0, tier=PRICED.name)
    (row,) = summary(curves, runs).itertuples()
    assert (row.runs, row.reached, row.time_median_s, row.time_min_s, row.time_max_s) == (
        2,
        2,
        25.0,
        20.0,
        30.0,
    )
    assert row.km_median_s == row.time_median_s
    assert (row.samples_median, row.samples_per_s, row.energy_j) == (2500, 100.5, 50.0)
    assert row.peak_memory_bytes == 2 * 2**30
    assert row.peak_gpu_memory_bytes == 2 * 2**31
    assert row.cost_usd == pytest.approx(25 / 3600 * PRICED.rental_price_usd_per_h)


def test_each_job_is_held_to_its_own_target_and_direction():
    clicks = make_runs(curves=[[0.6, 0.8]])
    speech = make_runs(job="speech", metric="cer", target=0.1, curves=[[0.9, 0.2, 0.05]])
    table = summary(pd.concat([clicks[0], speech[0]]), pd.concat([clicks[1], speech[1]])).set_index("job")
    assert table.loc["dlrm", "time_median_s"] == 20 and table.loc["speech", "time_median_s"] == 30


def test_a_run_without_an_evaluation_counts_and_did_not_reach_the_target():
    curves, runs = make_runs(curves=[[0.8], []])
    (row,) = summary(curves, runs).itertuples()
    assert (row.runs, row.reached, row.time_median_s) == (2, 1, 10.0)


def test_runs_of_which_none_was_evaluated_make_a_row():
    curves, runs = make_runs(curves=[[], []])
    (row,) = summary(curves, runs).itertuples()
    assert (row.runs, row.reached, row.km_median_s) == (2, 0, np.inf) and np.isnan(row.time_median_s)


def test_energy_that_was_not_measured_says_why():
    (row,) = summary(*make_runs(curves=[[0.8]])).itertuples()
    assert np.isnan(row.energy_j) and row.energy_note == "no counter here"


def test_cost_counts_wall_time_whatever_the_clock():
    curves, runs = make_runs(curves=[[0.6, 0.8]], tier=PRICED.name)
    by_wall, by_training = (summary(curves, runs, x=x) for x in ("wall_s", "train_s"))
    assert by_training["time_median_s"].item() == by_wall["time_median_s"].item() / 2
    assert by_training["cost_usd"].item() == by_wall["cost_usd"].item()


def test_a_tier_without_a_price_costs_nothing_known_and_says_why():
    cost = cost_usd(3600, UNPRICED.name)
    assert cost.value_usd is None and UNPRICED.name in cost.note


def test_hardware_outside_the_catalogue_has_no_cost_and_says_why():
    assert cost_usd(3600, None).value_usd is None and "no tier" in cost_usd(3600, None).note
    assert cost_usd(3600, "abacus").value_usd is None and "abacus" in cost_usd(3600, "abacus").note


def test_a_target_that_was_not_reached_has_no_cost():
    assert cost_usd(np.inf, PRICED.name).value_usd is None


def test_an_hour_costs_the_price_of_an_hour():
    assert cost_usd(3600, PRICED.name).value_usd == pytest.approx(PRICED.rental_price_usd_per_h)
    curves, _ = make_runs(curves=[[0.5] * 360], tier=PRICED.name)
    assert with_cost(curves)["cost_usd"].iloc[-1] == pytest.approx(PRICED.rental_price_usd_per_h)


def test_without_a_given_target_it_is_what_every_run_reached():
    curves, runs = make_runs(curves=[[0.6, 0.9], [0.8, 0.7]], target=np.nan)
    assert default_target(curves, runs) == 0.8
    curves, runs = make_runs(curves=[[0.6, 0.1], [0.3, 0.4]], target=np.nan, metric="cer")
    assert default_target(curves, runs) == 0.3

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from labkit.tta import crossings, higher_is_better

NO_RUNS = pd.DataFrame(columns=["metric", "higher_is_better"])


def curve(run, values, *, seconds=None, budget="all-cores", metric="auc"):
    """Synthetic evaluations, one every 10 wall seconds and 8 training seconds."""
    count = len(values)
    wall_s = np.arange(1, count + 1) * 10.0 if seconds is None else np.asarray(seconds, float)
    return pd.DataFrame(
        {
            "run": run,
            "job": "dlrm",
            "budget": budget,
            "seed": 0,
            "provenance": "measured",
            "tier": None,
            "metric": metric,
            "samples": np.arange(1, count + 1) * 1000,
            "wall_s": wall_s,
            "train_s": 0.8 * wall_s,
            "value": np.asarray(values, float),
        }
    )


def test_first_crossing_is_the_first_evaluation_at_the_target_and_is_not_interpolated():
    (row,) = crossings(curve("a", [0.5, 0.6, 0.8, 0.9]), 0.7, higher_is_better=True).itertuples()
    assert (row.reached, row.time_to_target_s, row.samples_to_target, row.value) == (True, 30.0, 3000, 0.8)


def test_a_value_equal_to_the_target_reaches_it():
    assert crossings(curve("a", [0.5, 0.7]), 0.7, higher_is_better=True)["time_to_target_s"].item() == 20.0


def test_a_falling_metric_is_crossed_from_above():
    hits = crossings(curve("a", [1.0, 0.2, 0.05], metric="cer"), 0.1, higher_is_better=False)
    assert hits["time_to_target_s"].item() == 30.0


def test_sustained_crossing_starts_after_the_last_fall():
    (row,) = crossings(curve("a", [0.6, 0.8, 0.6, 0.8, 0.9]), 0.7, higher_is_better=True).itertuples()
    assert (row.time_to_target_s, row.sustained, row.sustained_time_s) == (20.0, True, 40.0)


def test_a_run_that_falls_back_at_its_end_reached_but_did_not_sustain():
    (row,) = crossings(curve("a", [0.6, 0.8, 0.6]), 0.7, higher_is_better=True).itertuples()
    assert row.reached and not row.sustained and np.isnan(row.sustained_time_s)


def test_a_run_that_never_gets_there_is_censored_at_its_last_evaluation():
    (row,) = crossings(curve("a", [0.5, 0.6]), 0.7, higher_is_better=True).itertuples()
    assert not row.reached and np.isnan(row.time_to_target_s)
    assert (row.last_time_s, row.last_samples) == (20.0, 2000)


def test_training_time_leaves_evaluation_out():
    hits = crossings(curve("a", [0.5, 0.8]), 0.7, higher_is_better=True, x="train_s")
    assert hits["time_to_target_s"].item() == pytest.approx(16.0)


def test_an_evaluation_that_is_not_a_number_reaches_nothing():
    for up in (True, False):
        assert not crossings(curve("a", [np.nan, np.nan]), 0.7, higher_is_better=up)["reached"].item()


def test_evaluations_out_of_order_are_put_in_order():
    shuffled = curve("a", [0.5, 0.8, 0.9]).iloc[[2, 0, 1]]
    assert crossings(shuffled, 0.7, higher_is_better=True)["time_to_target_s"].item() == 20.0


@pytest.mark.parametrize("metric", ["cer", "wer", "log_loss", "normalised_entropy", "loss"])
def test_errors_and_losses_fall(metric):
    assert not higher_is_better(metric, NO_RUNS)


@pytest.mark.parametrize("metric", ["auc", "accuracy"])
def test_auc_and_accuracy_rise(metric):
    assert higher_is_better(metric, NO_RUNS)


def test_the_runs_say_which_way_a_metric_of_ones_own_is_better():
    runs = pd.DataFrame({"metric": ["bleu", "perplexity", "auc"], "higher_is_better": [True, False, None]})
    assert higher_is_better("bleu", runs)
    assert not higher_is_better("perplexity", runs)
    assert higher_is_better("auc", runs)  # of a run from before runs said so

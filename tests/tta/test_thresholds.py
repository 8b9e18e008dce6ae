import numpy as np
import pandas as pd
from made_up import made_up

from labkit.tracking import crossing
from labkit.tta import crossings, higher_is_better


def hit(values, target=0.7, *, x="wall_s", **more):
    (row,) = crossings(*made_up([values], **more), target, x=x).itertuples()
    return row


def test_first_crossing_is_the_first_evaluation_at_the_target_and_is_not_interpolated():
    row = hit([0.5, 0.6, 0.8, 0.9])
    assert (row.outcome, row.reached, row.time_to_target_s, row.samples_to_target) == ("reached", True, 30.0, 3000)
    assert (row.value, row.spent_s) == (0.8, 30.0)
    assert hit([0.5, 0.7]).time_to_target_s == 20.0, "an equal value reaches it"
    assert hit([1.0, 0.2, 0.05], 0.1, metric="cer").time_to_target_s == 30.0, "a falling metric from above"
    assert hit([0.5, 0.8], x="train_s").time_to_target_s == 10.0, "evaluation is left out"
    assert not hit([np.nan, np.nan]).reached and not hit([np.nan, np.nan], metric="cer").reached
    curves, runs = made_up([[0.5, 0.8, 0.9]])
    assert crossings(curves.iloc[[2, 0, 1]], runs, 0.7)["time_to_target_s"].item() == 20.0, "in whatever order"


def test_sustained_is_the_first_streak_that_confirms_the_target_whatever_follows():
    row = hit([0.6, 0.8, 0.6, 0.8, 0.9, 0.5])
    assert (row.time_to_target_s, row.sustained, row.sustained_time_s) == (20.0, True, 40.0)
    row = hit([0.6, 0.8, 0.6])
    assert row.reached and not row.sustained and np.isnan(row.sustained_time_s)


def test_a_run_that_does_not_get_there_is_what_its_end_made_of_it():
    for unreached, spent_s in (("failed", 25.0), ("censored", 20.0)):
        row = hit([0.5, 0.6], unreached=unreached, wall_s=25.0)
        assert not row.reached and np.isnan(row.time_to_target_s)
        assert (row.outcome, row.last_time_s, row.spent_s) == (unreached, 20.0, spent_s)


def test_a_crossing_is_what_a_look_at_each_evaluation_finds():
    random = np.random.default_rng(0)
    for _ in range(300):
        confirm, count, up = int(random.integers(1, 4)), int(random.integers(1, 12)), bool(random.integers(2))
        values = random.integers(1, 6, count) / 10
        if random.random() < 0.3:
            values[random.integers(count)] = np.nan
        target = int(random.integers(1, 7)) / 10
        passed = [value >= target if up else value <= target for value in values]
        streaks = [passed[place : place + confirm] for place in range(count)]
        sustained = [all(streak) and len(streak) == confirm for streak in streaks]
        expected = [each.index(True) if True in each else -1 for each in (passed, sustained)]
        # beside other runs, whose evaluations are none of its own
        beside = np.concatenate([[0.6, 0.1], values, [0.1, 0.6]])
        for each, place in zip((1, confirm), expected, strict=True):
            found = crossing(beside, [2, count, 2], [target, 0.35], [1, each, 1], higher_is_better=up)
            assert found[0, 1] == place, (values, target, each, up)


def test_errors_and_losses_fall_and_runs_say_which_way_a_metric_of_ones_own_is_better():
    runs = pd.DataFrame({"metric": ["bleu", "perplexity", "auc"], "higher_is_better": [True, False, None]})
    for metric in ("cer", "wer", "log_loss", "normalised_entropy", "loss", "perplexity"):
        assert not higher_is_better(metric, runs)
    assert all(higher_is_better(metric, runs) for metric in ("bleu", "auc", "accuracy"))

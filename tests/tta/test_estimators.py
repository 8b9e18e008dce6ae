"""Time to a target when not every run gets there: survival, the expected time with restarts, and thresholds."""

import math
import time

import numpy as np
import pandas as pd
import pytest
from made_up import arriving, made_up, new_run, together, write_samples
from scipy import stats
from statistics_of_time import CASES, coverage, draw

from labkit.errors import UserError
from labkit.tracking import crossing
from labkit.tta import (
    band,
    crossings,
    higher_is_better,
    mean_interval,
    runs_needed,
    survival,
    survival_curve,
    trial_means,
    trial_table,
)
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


BEGIN = 1_700_000_000
TRIAL = {"number": 2, "torch_name": "cpu", "idle_power_w": 20.0, "cool_down": "cooled down in 5 s"}


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run of steps of 100 samples, each of so many seconds; after the 20th, 10 s of evaluation. 60 W; then 30 W."""

    def make(steps_s, *, name="loss", samples=100, power_w=60.0, trial=TRIAL, **train):
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(BEGIN + 3))
        monkeypatch.setattr("labkit.runs.writer.timestamp", lambda: stamp)
        config = {"job": "t", "train": train, "trial": trial}
        writer = new_run(tmp_path, config=config, devices=[{"torch_name": "cpu"}])
        writer.event("began", clock_s=3.0)  # a step of 3 s was taken by then
        ends_s = np.cumsum([0.0, *steps_s])
        for step, train_s in enumerate(ends_s[1:], start=1):
            point = {"wall_s": train_s + 10 * (step > 20), "train_s": train_s, "samples": samples * step}
            writer.metric(step=step, name=name, value=1.0, **point)
        until = int(ends_s[-1]) + 12
        joules, evaluated_s = {}, ends_s[:21][-1]
        for now_s in np.arange(0, until if power_w else 0, 0.5):
            training_s = now_s - np.clip(now_s - evaluated_s, 0, 10)
            joules[now_s] = power_w * training_s + 30 * (now_s - training_s)
        write_samples(writer.folder, "host", "cpu_energy_0", joules, begin_s=BEGIN)
        writer.finish("done", {})
        return writer.folder

    return make


def test_the_warm_up_and_the_evaluation_do_not_count(run):
    """Ten steps of 2 s, then of 1 s: pieces of 3.5 s, of which the first with a slow step no more is the seventh."""
    (row,) = trial_table([run([2.0] * 10 + [1.0] * 50, power_limit_w=150.0)]).to_dict("records")
    assert row["warm_up_s"] == 20 and row["steady_s"] == 50
    assert row["samples_per_s"] == pytest.approx(100) and row["power_w"] == pytest.approx(60)
    assert (row["energy_per_sample_j"], row["above_idle_j"]) == (pytest.approx(0.6), pytest.approx(0.4))
    assert (row["power_limit_w"], row["trial"]) == (150, 2)
    assert "cooled down in 5 s" in row["note"] and "all CPU packages" in row["note"]


SAMPLES, ENERGY, ABOVE = "samples_per_s", "energy_per_sample_j", "above_idle_j"
SETTLED = [1.0] * 30


@pytest.mark.parametrize(
    ("steps_s", "given", "known", "unknown", "why"),
    [
        ([0.5] * 15, {}, {}, SAMPLES, "of 10 pieces of 1 s it has 8"),
        (1 / np.linspace(0.5, 4, 100), {}, {}, SAMPLES, "its samples/s never settle"),
        ([], {}, {}, SAMPLES, "of 10 pieces of 1 s it has 0"),
        (SETTLED, {"power_w": None}, {SAMPLES: 100}, "power_w", "not measurable"),
        (SETTLED, {"name": "steps", "samples": 0}, {"power_w": 60}, ENERGY, "counts no samples"),
        # idle power of another device is not taken off
        (SETTLED, {"trial": TRIAL | {"torch_name": "cuda:0"}}, {ENERGY: 0.6}, ABOVE, ""),
    ],
)
def test_what_a_trial_does_not_show_is_no_number_and_its_note_says_why(run, steps_s, given, known, unknown, why):
    (row,) = trial_table([run(steps_s, **given)]).to_dict("records")
    assert {name: row[name] for name in known} == pytest.approx(known)
    assert math.isnan(row[unknown]) and why in row["note"]


def test_means_of_each_limit_have_students_interval(run):
    folders = [run([1.0] * 30, power_w=watts, power_limit_w=limit) for limit in (100, 200) for watts in (50, 60, 70)]
    means = trial_means(trial_table(folders)).set_index("power_limit_w")
    low, high = stats.t.interval(0.95, 2, loc=0.6, scale=0.1 / math.sqrt(3))
    for limit in (100, 200):
        row = means.loc[limit]
        assert (row["trials"], row["energy_per_sample_j"]) == (3, pytest.approx(0.6))
        assert (row["energy_per_sample_j_low"], row["energy_per_sample_j_high"]) == pytest.approx((low, high))
    one = trial_means(trial_table(folders[:1]))
    assert math.isnan(one["power_w_low"][0]) and one["power_w"][0] == pytest.approx(50)


@pytest.mark.parametrize(("spread", "difference", "power"), [(0.002, 0.001, 0.8), (0.05, 0.02, 0.8), (0.05, 0.02, 0.5)])
def test_so_many_runs_find_the_difference_as_often_as_asked(spread, difference, power):
    runs, random = runs_needed(spread, difference, power), np.random.default_rng(0)
    studies = random.normal(difference, spread, (4000, runs))
    found = np.mean([mean_interval(each)[1] > 0 for each in studies])
    assert found == pytest.approx(power, abs=0.03)  # four standard deviations of a share of 4,000


def test_no_number_of_runs_finds_a_difference_of_nothing():
    with pytest.raises(UserError, match="smallest one that matters"):
        runs_needed(0.1, 0.0)

"""Summaries of runs: measured, recorded and shared."""

import numpy as np
import pandas as pd
import pytest
from made_up import arriving, made_up, together, write_run

from labkit.hardware import load_tiers
from labkit.plots import describe, figure_batch_size
from labkit.project import shipped_datasets
from labkit.runs import Series, recorded, run_folders
from labkit.telemetry.energy import OF_ALL
from labkit.tta import (
    by_batch_size,
    cost_usd,
    crossings,
    curves,
    default_target,
    run_table,
    speed_up,
    summary,
    survival,
    with_cost,
)

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


def test_without_a_given_target_it_is_what_every_run_reached():
    curves, runs = made_up([[0.6, 0.9], [0.8, 0.7]], target=np.nan)
    assert default_target(curves, runs) == 0.8
    curves, runs = made_up([[0.6, 0.1], [0.3, 0.4]], target=np.nan, metric="cer")
    assert default_target(curves, runs) == 0.3


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


def at(size, times, lr=0.1, **more):
    settings = {"budget": "all-cores", "batch_size": size, "lr": lr}
    return arriving(times, budget=f"all-cores · {size} · {lr}", settings=settings, **more)


def table(*made, **more):
    return by_batch_size(*together(*made), 0.7, **more)


def test_time_is_the_training_that_is_needed_over_the_rate():
    (row,) = table(at(64, [10.0, 20.0, 30.0])).itertuples()
    assert (row.device, row.batch_size, row.runs, row.reached) == ("all-cores", 64, 3, 3)
    assert (row.need, row.need_low, row.need_high) == (2000, 1000, 3000)  # samples, 100 a wall second
    assert row.rate == 200 and row.time_s == 10.0, "the clock of training runs half as fast here"
    assert (row.time_low_s, row.time_high_s) == (5.0, 15.0)


def test_of_the_learning_rates_of_a_batch_size_the_best_is_kept():
    made = at(64, [30.0, 30.0], lr=0.1), at(64, [10.0, 10.0], lr=0.4), at(128, [20.0, 20.0])
    assert table(*made)["need"].tolist() == [1000, 2000]


def test_runs_that_fail_count_and_a_batch_size_that_does_not_arrive_has_no_time():
    few, none = table(at(64, [10.0, 10.0, np.inf]), at(128, [np.inf, np.inf, 10.0])).itertuples()
    assert (few.reached, few.failed, few.need) == (2, 1, 1000)
    assert (none.reached, none.failed) == (1, 2) and none.need == none.time_s == np.inf


def test_two_devices_are_two_lines_and_recorded_marks_are_hollow():
    theirs = arriving(
        [5.0, 6.0], budget="V100", provenance="recorded, You et al. 2023", settings={"budget": "V100", "batch_size": 64}
    )
    figure = figure_batch_size(table(at(64, [10.0, 20.0]), at(128, [np.inf] * 3), theirs))
    shown = {trace.name: trace for trace in figure.data if trace.showlegend}
    assert list(shown) == ["V100 · recorded, You et al. 2023", "all-cores · measured"]
    own, other = shown["all-cores · measured"], shown["V100 · recorded, You et al. 2023"]
    assert other.marker.symbol.endswith("-open") and not own.marker.symbol.endswith("-open")
    assert own.line.dash != other.line.dash
    need, rate, time = (trace for trace in figure.data if trace.name == own.name)
    assert time.y[0] == pytest.approx(need.y[0] / rate.y[0])
    (lost,) = (trace for trace in figure.data if trace.name.startswith("half or more do not arrive"))
    assert list(lost.x) == [128] and lost.text == ("0 of 3 runs arrive",)
    words = describe(figure)
    assert "batch 64 gets there in the least" in words.text and "128 not at all" in words.text
    titles = [figure.layout[name].title.text for name in ("yaxis", "yaxis2", "yaxis3", "xaxis3")]
    assert titles == [
        "Samples to the target", "Samples per second of training", "Time to the target (s)",
        "Batch size (samples per step)",
    ]  # fmt: skip


def test_without_times_only_the_training_is_drawn():
    curves, runs = made_up([[0.8], [0.8]], settings={"budget": "reference", "batch_size": 512})
    curves, runs = (frame.assign(epochs=3.0, wall_s=np.nan, train_s=np.nan) for frame in (curves, runs))
    rows = by_batch_size(curves, runs, 0.7, unit="epochs")
    assert rows["need"].tolist() == [3.0] and rows["time_s"].isna().all()
    figure = figure_batch_size(rows)
    assert [trace.name for trace in figure.data] == ["reference · measured"]
    assert figure.layout.yaxis.title.text == "Epochs to the target"


SPEECH = "deepspeech2 on librispeech"


def test_hours_to_a_word_error_rate_of_35_at_batch_32_and_the_highest_power_limits():
    runs, curves = recorded("zeus-nsdi23", job=SPEECH, batch_size=32, power_limit_w="max")
    table = by_batch_size(curves, runs, 0.35, unit="epochs").set_index("device")
    expected = {"P100": 90.4, "V100": 22.9, "RTX 6000": 23.4, "A40": 20.0}
    assert {gpu: round(time_s / 3600, 1) for gpu, time_s in table["time_s"].items()} == expected
    by_wall = survival(curves, runs, 0.35).merge(runs[["budget", "device"]].drop_duplicates()).set_index("device")
    assert by_wall["median"].to_dict() == pytest.approx(table["time_s"].to_dict()), "one time, two ways"
    assert (table["reached"] == 5).all()


def test_no_run_of_batch_128_and_more_gets_there_at_any_power_limit_and_all_of_them_count():
    runs, curves = recorded("zeus-nsdi23", job=SPEECH)
    large = runs[runs["batch_size"] >= 128]
    assert set(large["device"]) == {"A40", "RTX 6000", "V100"} and set(large["batch_size"]) == {128, 156, 192}
    outcomes = crossings(curves, runs, 0.35).set_index("run")["outcome"]
    assert len(outcomes) == len(runs) and (outcomes[large["run"]] == "failed").all()
    table = by_batch_size(curves, runs, 0.35, unit="epochs")
    is_large = table["batch_size"] >= 128
    assert (table["failed"][is_large] == 5).all() and np.isinf(table["time_s"][is_large]).all()
    assert np.isfinite(table["time_s"][~is_large]).all(), "at the smaller ones more than half arrive"


def test_at_one_batch_the_ratio_of_two_gpus_is_the_same_at_every_target():
    runs, curves = recorded("zeus-nsdi23", job=SPEECH, batch_size=64, power_limit_w="max")
    hours = survival(curves, runs, curves["value"].unique()).pivot(index="target", columns="budget", values="median")
    gaps = hours.max(axis=1) / hours.min(axis=1)
    assert len(gaps) == 7 and gaps.to_list() == pytest.approx([3.782] * 7, abs=1e-3)


def test_labkit_s_own_runs_on_a_gpu_are_recorded_not_measured_here_and_bring_its_energy_and_price():
    folders = run_folders(shipped_datasets() / "recorded" / "speech_h200")
    runs = run_table(folders).set_index("seed").sort_index()
    assert set(runs["provenance"]) == {"recorded"} and set(runs["tier"]) == {"h200"}
    reached = crossings(curves(folders), runs.reset_index(), 0.05).set_index("run").loc[runs["run"]]
    assert reached["outcome"].to_list() == ["reached"] * 3
    assert reached["time_to_target_s"].round(1).to_list() == [5.9, 7.2, 10.0]
    assert runs["energy_j"].round().to_list() == [965, 1018, 1408]


PAIR = {"group": "g", "job": "a", "jobs": "2 × a.py", "mix": "f0"}


def test_runs_of_one_host_name_on_two_kinds_of_cpu_are_two_series(tmp_path):
    for seed, model in enumerate((1, 17)):
        record = write_run(tmp_path, [0.7, 0.8, 0.8], seed=seed) / "run.json"
        record.write_text(record.read_text().replace("A test's CPU", f"AMD EPYC, family 25 model {model}"))
    runs = run_table(run_folders(tmp_path))
    assert runs["host"].nunique() == 1 and len({Series.of(run).label for run in runs.to_dict("records")}) == 2


def test_only_runs_with_the_same_neighbours_in_the_same_mode_share_a_line(tmp_path):
    told = {
        "all-cores": [None, PAIR | {"mode": "alone"}],
        "cpu-shared, 2 × a.py": [PAIR | {"mode": "cpu-shared"} | other for other in ({}, {"job": "b", "group": "h"})],
        "cpu-pinned, 2 × a.py · mix f0": [PAIR | {"mode": "cpu-pinned"}],
        "cpu-pinned, 2 × a.py · mix e1": [PAIR | {"mode": "cpu-pinned", "mix": "e1"}],
    }
    configs = [{"collocation": each} if each else {} for line in told.values() for each in line]
    runs = run_table([write_run(tmp_path, [], config=each, energy_note=None) for each in configs])
    labels = [budget for budget, line in told.items() for _ in line]
    assert [Series.of(run).label for run in runs.to_dict("records")] == labels
    assert list(runs["tier"]) == ["cloud-cpu-2"] * 2 + [None] * 4
    assert np.isnan(runs["energy_j"][2:].to_numpy(float)).all()
    assert set(runs["energy_note"][2:]) == {OF_ALL}

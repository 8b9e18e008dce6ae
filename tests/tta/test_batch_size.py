"""What a batch size costs: need, rate, and time as their quotient."""

import numpy as np
import pytest
from made_up import arriving, made_up, together

from labkit.plots import describe, figure_batch_size
from labkit.tta import by_batch_size


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
        "Samples to the target", "Samples a second of training", "Time to the target (s)",
        "Batch size (samples a step)",
    ]  # fmt: skip


def test_without_times_only_the_training_is_drawn():
    curves, runs = made_up([[0.8], [0.8]], settings={"budget": "reference", "batch_size": 512})
    curves, runs = (frame.assign(epochs=3.0, wall_s=np.nan, train_s=np.nan) for frame in (curves, runs))
    rows = by_batch_size(curves, runs, 0.7, unit="epochs")
    assert rows["need"].tolist() == [3.0] and rows["time_s"].isna().all()
    figure = figure_batch_size(rows)
    assert [trace.name for trace in figure.data] == ["reference · measured"]
    assert figure.layout.yaxis.title.text == "Epochs to the target"

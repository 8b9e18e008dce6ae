"""Predictions of steps and of the time to a target, and measured ones."""

import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from made_card import CACHES, LIMITS, made_card, made_points, made_s, product

from labkit.errors import UserError
from labkit.perfmodel import measure
from labkit.perfmodel.card import SCHEMA, KernelModel, features_of, geometric_error, read_card
from labkit.perfmodel.measure import TimedStep, at_usual_speed, fit_card, fit_overheads, time_workload
from labkit.perfmodel.operators import Operator
from labkit.perfmodel.predict import Need, predict_step, predict_steps, samples_to_target, to_target
from labkit.perfmodel.workloads import JOBS, Workload, build_workload, draw_workload
from labkit.tracking import Target


def features(*operators):
    return np.array([features_of(each) for each in operators])


# The formula is one that the model's physics can say; where there are few points, physics speaks alone.
@pytest.mark.parametrize(("points", "limit"), [(made_points(), 0.03), (made_points(5), 0.3)], ids=["many", "few"])
def test_a_kernel_model_predicts_operators_that_it_has_not_seen(points, limit):
    held_out = made_points(40, seed=1)
    misses = np.log(held_out.times_s / KernelModel(points, CACHES, 50.0).seconds(held_out.features))
    assert geometric_error(misses) < limit


def test_what_is_far_larger_than_what_was_timed_is_not_known():
    model = KernelModel(made_points(), CACHES, 50.0)
    inside, beyond = product(64, 64, 64), product(16384, 16384, 16384)
    assert model.is_known(features(inside, beyond)).tolist() == [True, False]
    points = made_points()
    tables = points.features.copy()
    tables[:, 2] = 2.0 ** np.arange(10, 10 + len(tables)).clip(max=26)  # tables of 64 MiB at most
    asked = tables[-2:].copy()
    asked[1, 2] = 2.0**33
    model = KernelModel(replace(points, features=tables), CACHES, 50.0)
    assert model.is_known(asked).tolist() == [True, False]


def test_a_step_is_its_operators_and_what_lies_between_them():
    operators = [product(256, 256, 256)] * 10
    prediction = predict_step(operators, made_card(), "dlrm")
    assert prediction.overheads_ms == pytest.approx(10 * 4e-3)
    kernels_ms = 10e3 * made_s(operators[0])
    assert prediction.step_ms == pytest.approx(kernels_ms + prediction.overheads_ms, rel=0.05)
    assert prediction.low_ms < prediction.step_ms < prediction.high_ms
    assert prediction.share("is_modelled") == 0
    # a job that was not timed has the overheads of all
    others = predict_step(operators, made_card(), "my script").overheads_ms
    assert others == pytest.approx(10e-3 + 10 * 2e-3)


def test_operators_without_a_model_are_counted_and_widen_the_interval():
    known = [product(256, 256, 256)]
    unknown = Operator("mine.op", "forward", (("float32", (10**6,), True),), bytes=4e8)
    plain, mixed = (predict_step(each, made_card(), "dlrm") for each in (known, [*known, unknown]))
    assert mixed.share("is_modelled") > 0.9
    assert mixed.high_ms / mixed.step_ms > 1.5 * plain.high_ms / plain.step_ms
    assert 8 < mixed.step_ms - plain.step_ms < 9, "400 MB at 50 GB/s"


def test_steps_that_differ_are_predicted_by_their_mean():
    card, small, large = made_card(), [product(64, 64, 64)], [product(512, 512, 512)] * 3
    alone = [predict_step(each, card, "dlrm") for each in (small, large)]
    both = predict_steps([small, large], card, "dlrm")
    assert both.step_ms == pytest.approx((alone[0].step_ms + alone[1].step_ms) / 2)
    assert both.operators["calls"].tolist() == [2.0]
    assert both.operators["time_ms"].sum() == pytest.approx(both.step_ms - both.overheads_ms)


def test_what_has_no_model_counts_by_what_was_seen():
    slow = Operator("mine.svd", "forward", (("float32", (8, 8), True),), bytes=512.0, seen_s=0.1)
    prediction = predict_step([replace(product(256, 256, 256), seen_s=0.001), slow], made_card(), "dlrm")
    assert prediction.share("is_modelled") > 0.9
    assert prediction.step_ms < 10, "predicted, it is a call and no more"


def test_views_are_told_apart():
    view = Operator("aten.mm", "forward", (("float32", (8, 8), True),) * 2, is_view=True)
    prediction = predict_step([product(256, 256, 256), view], made_card(), "dlrm")
    assert 0 < prediction.views_ms < prediction.step_ms
    assert prediction.active < 1


def test_a_card_comes_back_from_its_file_which_has_one_line_a_kind(tmp_path):
    card, path = made_card(), tmp_path / "card.json"
    card.save(path)
    again, operators = read_card(path), [product(100, 200, 300)]
    told = [predict_step(operators, each, "dlrm").step_ms for each in (card, again)]
    assert told[1] == pytest.approx(told[0], rel=1e-2)
    assert again.interval("dlrm") == card.interval("dlrm")
    assert json.loads(path.read_text())["schema"] == SCHEMA
    assert any(line.startswith(' "aten.mm float32"') for line in path.read_text().splitlines())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "labkit calibrate"),
        ("{", "line 1"),
        ("[]", "not a card of this version"),
        ('{"schema": 99}', "not a card of this version"),
        ('{"schema": 4, "device": "x"}', "damaged"),
    ],
)
def test_what_is_no_card_is_refused(tmp_path, text, words):
    path = tmp_path / "card.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UserError, match=words):
        read_card(path)


ODD = [{"overheads": {}}, {"misses": {"dlrm": [1000.0] * 5}}, {"threads": -5}, {"caches": [-1, -1]}, {"kernels": {}}]


@pytest.mark.parametrize("odd", [*ODD, {"noise": math.nan}], ids=str)
def test_a_card_with_numbers_that_no_calibration_finds_is_refused(tmp_path, odd):
    made_card().save(path := tmp_path / "card.json")
    path.write_text(json.dumps(json.loads(path.read_text()) | odd))
    with pytest.raises(UserError, match="this card is damaged"):
        read_card(path)


@pytest.mark.parametrize("job", JOBS)
def test_a_seed_draws_the_same_workload_each_time_and_its_step_can_be_timed(job, monkeypatch):
    monkeypatch.setattr(measure, "ENOUGH_S", 0.0)
    first, again, other = (draw_workload(job, seed) for seed in (1, 1, 2))
    assert first.settings == again.settings != other.settings
    timed = time_workload(first, timing=0.0)
    assert len(timed.times_s) == len(timed.operators) > 0
    assert timed.step_s > 0
    assert {operator.phase for operator in timed.operators} == {"forward", "backward", "optimiser"}


def test_steps_that_call_other_operators_each_time_are_left_out():
    taken = iter(range(10**6))

    def step():
        return [torch.ones(3).add(1) for _ in range(next(taken) % 3)]

    assert time_workload(Workload("mine", {}, step), timing=0.0) is None


def made_steps(count=30, call_us=3.0, step_us=200.0):
    """Steps of products, with overheads that are known: of each step, and of each operator of the forward pass."""
    rng = np.random.default_rng(0)
    steps = []
    for number in range(count):
        operators = []
        for _ in range(int(rng.integers(10, 60))):
            rows = int(2 ** rng.uniform(4, 9))
            tensors = (("float32", (rows, 64), True), ("float32", (64, 64), True))
            phase = ("forward", "backward", "optimiser")[int(rng.integers(3))]
            operators.append(Operator("aten.mm", phase, tensors, flop=2.0 * rows * 64 * 64, bytes=4.0 * rows * 128))
        times = np.array([2e-6 + each.flop / 5e10 for each in operators])
        forward = sum(each.phase == "forward" for each in operators)
        whole = times.sum() + forward * call_us / 1e6 + step_us / 1e6
        steps.append(TimedStep(measure.WHOLE[number % 3], {}, operators, times, whole))
    return steps


def test_overheads_are_found_in_steps_that_have_them():
    found = fit_overheads(made_steps())
    assert found.step_us == pytest.approx(200.0, rel=0.01)
    assert found.calls_us == pytest.approx((3.0, 0.0, 0.0), abs=0.01)


def test_a_card_tells_how_far_off_it_is_for_steps_that_it_had_not_seen():
    card = fit_card([(step, 1.0) for step in made_steps()], LIMITS)
    assert [len(card.misses[job]) for job in measure.WHOLE] == [10, 10, 10]
    assert max(abs(miss) for misses in card.misses.values() for miss in misses) < 0.1
    assert card.kinds["aten.mm float32"][1] == pytest.approx(1.0)
    assert card.noise == 0


def test_a_kind_that_one_step_alone_has_is_of_no_known_error():
    first, *others = made_steps()
    strange = Operator("mine.op", "forward", (("float32", (8, 8), True),))
    times = np.append(first.times_s, 1e-3)
    steps = [TimedStep(first.job, {}, [*first.operators, strange], times, first.step_s + 1e-3), *others]
    card = fit_card([(step, 1.0) for step in steps], LIMITS)
    assert "mine.op" in card.kernels and "mine.op" not in card.kinds
    assert max(card.misses[first.job]) > 0.1, "predicted from the machine's best speed"


def test_slow_moments_are_a_part_of_the_misses_and_of_no_model():
    steps = made_steps()
    slow = [
        (TimedStep(step.job, {}, step.operators, 2 * step.times_s, 2 * step.step_s), 2.0) if number % 5 == 0
        else (step, 1.0)
        for number, step in enumerate(steps)
    ]  # fmt: skip
    card = fit_card(slow, LIMITS)
    misses = np.array([miss for own in card.misses.values() for miss in own])
    assert (misses > 0.5).sum() == 6
    assert np.abs(misses[misses < 0.5]).max() < 0.15
    assert card.noise > 0


def test_steps_of_a_slow_moment_count_as_they_would_at_the_usual_speed():
    step = made_steps(1)[0]
    slow = TimedStep(step.job, {}, step.operators, 1.5 * step.times_s, 1.5 * step.step_s)
    first, second, _ = at_usual_speed([(step, 2.0), (slow, 3.0), (step, 2.0)])
    assert second.step_s == pytest.approx(first.step_s)
    assert second.times_s == pytest.approx(first.times_s)


def test_the_reference_can_be_built():
    build_workload("dlrm", measure.REFERENCE).step()


TARGET = Target.parse("auc >= 0.7")
ROWS = [(256, 1000.0), (1024, 4000.0)]


@pytest.fixture
def measured(monkeypatch):
    """Two batch sizes whose runs needed 1,000 and 4,000 samples."""
    table = pd.DataFrame(
        [
            {"batch_size": size, "need": need, "need_low": need / 2, "need_high": math.inf, "time_s": 1.0, "runs": 3,
             "reached": 2}
            for size, need in ROWS
        ]
    )  # fmt: skip
    monkeypatch.setattr("labkit.tta.curves", lambda folders, **_: pd.DataFrame({"value": [0.6, 0.65]}))
    monkeypatch.setattr("labkit.tta.by_batch_size", lambda curves, runs, target: table)
    return table


RUNS = pd.DataFrame({"run": [1], "folder": ["runs/1"]})


def test_samples_to_a_target_are_those_measured_or_lie_between_two_batches(measured):
    need = samples_to_target(RUNS, TARGET, 256)
    assert (need.samples, need.low, need.high) == (1000.0, 500.0, 2000.0)
    assert "measured, by 2 of 3 runs at batch 256" in need.how
    between = samples_to_target(RUNS, TARGET, 512)
    assert between.samples == pytest.approx(2000.0), "on a line of logarithms"
    assert "between those of 256 and 1,024" in between.how
    with pytest.raises(UserError, match="only at 256, 1,024"):
        samples_to_target(RUNS, TARGET, 4096)
    measured["need"] = math.inf
    with pytest.raises(UserError, match=r"never reached.*their best is 0\.65"):
        samples_to_target(RUNS, TARGET, 256)


def test_seconds_joules_and_dollars_go_with_the_samples():
    step = predict_step([product(64, 64, 64)], made_card())
    once, twice = (to_target(step, 100, Need(n, n, n, ""), "cloud-cpu-2") for n in (1e4, 2e4))
    assert once.seconds == pytest.approx(100 * step.step_ms / 1e3)
    assert twice.seconds == pytest.approx(2 * once.seconds)
    assert twice.cost_usd == pytest.approx(2 * once.cost_usd)
    assert once.low_s <= once.seconds <= once.high_s
    assert to_target(step, 100, Need(1.0, 1.0, 1.0, ""), None).cost_usd is None

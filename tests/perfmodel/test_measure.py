"""A card, made of steps that were timed on this machine."""

import numpy as np
import pytest
import torch
from made_card import LIMITS

from labkit.perfmodel import measure
from labkit.perfmodel.measure import TimedStep, at_usual_speed, fit_card, fit_overheads, time_workload
from labkit.perfmodel.operators import Operator
from labkit.perfmodel.workloads import JOBS, Workload, build_workload, draw_workload


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

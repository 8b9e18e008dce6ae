"""What an operator and a step take, from a card."""

import json
from dataclasses import replace

import numpy as np
import pytest
from made_card import CACHES, made_card, made_points, made_s, product

from labkit.errors import UserError
from labkit.perfmodel.card import SCHEMA, KernelModel, features_of, geometric_error, read_card
from labkit.perfmodel.operators import Operator
from labkit.perfmodel.predict import predict_step, predict_steps


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

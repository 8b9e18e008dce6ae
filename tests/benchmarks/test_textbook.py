"""The textbook's pipeline computes what ours computes, or a comparison of their speeds would mean nothing."""

import json

import numpy as np
import pytest
import torch
from torch import nn

from labkit.data.clicks import load_clicks
from labkit.data.clicks.export import write_clicks
from labkit.data.clicks.generate import GeneratorConfig
from labkit.fast.activation import MaskedRelu
from labkit.models.dlrm import Dlrm, DlrmConfig
from labkit.models.speech import SpeechConfig
from labkit.training.config import OPTIMISERS, TrainConfig
from labkit.training.step import StepKind, TrainStep

CONFIG = DlrmConfig(dense_dim=3, num_rows=(5, 7, 30), embedding_dim=4, bottom_mlp=(8, 4), top_mlp=(6, 1))


@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_the_textbooks_step_does_what_ours_does(optimiser):
    from dlrm_step import CPU, Shape, StepJob, made_up_batch
    from textbook_dlrm import TextbookDlrm, textbook_optimiser, textbook_step

    torch.manual_seed(0)
    model, textbook = Dlrm(CONFIG), TextbookDlrm(CONFIG)
    textbook.take_weights(model)
    step = TrainStep(StepJob(model), TrainConfig(optimiser=optimiser, lr=0.05), StepKind("fp32"), CPU)
    optimisers = textbook_optimiser(textbook, optimiser, 0.05)
    for index in range(3):
        dense, categorical, label = made_up_batch(Shape(CONFIG, pooling_factor=2), 16)
        loss = step((dense, categorical, label), index)
        expected = textbook_step(textbook, optimisers, (dense, [b.long() for b in categorical.unbind(1)], label))
        torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(model.tables.weight, torch.cat([table.weight for table in textbook.tables]))
    torch.testing.assert_close(model.top.state_dict(), textbook.top.state_dict())


def test_the_textbooks_rows_are_ours(tmp_path):
    from textbook_dlrm import TextbookRows, loader

    file = tmp_path / "log.tsv"
    write_clicks(file, 700, GeneratorConfig(num_rows=(20,) * 26), "criteo", lambda fraction, text: None)
    rows = TextbookRows(file, train_share=6 / 7, min_count=2)
    log = load_clicks(str(file), cache_dir=tmp_path / "cache", min_count=2)
    assert rows.num_rows == log.table_rows
    train = log.split("train")
    assert rows.train_rows == len(train)
    np.testing.assert_allclose(rows.dense[: len(train)], train.dense, atol=1e-4)
    assert rows.labels[: len(train)] == train.label.tolist()
    for table in range(26):  # equally frequent values may have changed places
        counts = [np.bincount(column) for column in
                  (np.array(rows.categorical)[: len(train), table], train.categorical[:, table, 0])]  # fmt: skip
        np.testing.assert_array_equal(*counts)
    dense, categorical, label = next(iter(loader(rows, range(10), 10, shuffle=False)))
    assert dense.shape == (10, 13) and [bags.shape for bags in categorical] == [(10, 1)] * 26
    assert label.tolist() == rows.labels[:10]


def test_the_textbooks_recogniser_trains_on_the_shipped_corpus():
    from textbook_speech import TextbookUtterances, loader, textbook_model, textbook_step

    utterances = TextbookUtterances("train", 4)
    config = SpeechConfig(vocabulary=len(utterances.alphabet), kind="conv", channels=8, layers=1)
    model = textbook_model(config)
    assert {type(part) for part in model.modules() if isinstance(part, nn.Dropout)} == {nn.Dropout}
    assert not any(isinstance(part, MaskedRelu) for part in model.modules())
    (batch,) = loader(utterances, 4)
    optimiser = torch.optim.Adam(model.parameters())
    losses = [textbook_step(model, optimiser, batch, 5.0).item() for _ in range(15)]
    assert losses[-1] < losses[0]


def test_ratios_are_of_medians_and_spread_over_turns():
    from measuring import speed_ups

    (ratio,) = speed_ups("it", {"slow": [2.0, 4.0, 8.0], "fast": [1.0, 1.0, 4.0]}, base="slow")
    assert (ratio.ratio, ratio.low, ratio.high) == (4.0, 2.0, 4.0)
    assert (ratio.way_value, ratio.base_value, ratio.unit) == (1000.0, 4000.0, "ms")


def test_ways_take_turns():
    from measuring import in_turn

    calls = []
    taken = in_turn({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, turns=2, warm_up=1)
    assert calls == ["a", "b"] * 3
    assert [len(times) for times in taken.values()] == [2, 2]


def test_equivalence_needs_the_whole_interval_within_the_margin():
    from same_accuracy import equivalence

    assert equivalence([0.0001, -0.0001, 0.0, 0.0001, -0.0001], 0.001)["same"]
    assert not equivalence([0.0001, -0.0001, 0.0, 0.0001, -0.0001], 0.00005)["same"]
    assert not equivalence([0.002, 0.0021, 0.0019, 0.002, 0.002], 0.001)["same"]


def test_the_search_ranks_who_always_gets_there_first():
    from speech_search import summary

    def one(name, seed, reached):
        return {"name": name, "lr": 1.0, "seed": seed, "time_to_target_s": reached}

    tries = [one("once", 0, 1.0), one("fast", 0, 1.0), one("lucky", 0, 2.0)]  # seed 0 chose who is in the final
    tries += [one("fast", 1, 5.0), one("fast", 2, 7.0), one("lucky", 1, 2.0), one("lucky", 2, None)]
    ranking = summary(tries)
    assert [row["name"] for row in ranking] == ["fast", "lucky"]
    assert ranking[0]["median_s"] == 6.0 and ranking[1]["reached"] == 1


def test_a_step_counts_its_weights_and_rows():
    from dlrm_step import Shape
    from scaling import lookups, step_flops

    layers = 3 * 8 + 8 * 4 + (4 + 6) * 6 + 6 * 1
    assert step_flops(CONFIG, 10) == 6 * 10 * (layers + 4 * 4 * 4)
    assert lookups(Shape(CONFIG, 2), 10) == 10 * 3 * 2


def test_what_equivalence_finds_can_be_written_as_json():
    from same_accuracy import equivalence

    assert json.loads(json.dumps(equivalence([0.1, 0.2, 0.3], 1.0)))["same"] is True

"""Batches of rows: each row once per epoch, in an order that needs little memory, starting anywhere; and scores."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import torch
from sklearn.metrics import log_loss, roc_auc_score

from labkit.data.clicks import batches as batches_module, load_clicks
from labkit.data.clicks.batches import WINDOW_ROWS, ClickBatches, in_order
from labkit.data.clicks.prepared import click_metrics
from labkit.errors import UserError


@pytest.fixture(autouse=True)
def _small_windows(monkeypatch):
    monkeypatch.setattr(batches_module, "BLOCK_ROWS", 16)
    monkeypatch.setattr(batches_module, "WINDOW_ROWS", 64)


def visited(num_rows: int, batch: int, seed=0, epoch=0, start=0) -> np.ndarray:
    batches = list(ClickBatches(range(num_rows), batch, seed).rows(epoch, start))
    assert {len(rows) for rows in batches[:-1]} <= {batch}
    return np.concatenate(batches)


@pytest.mark.parametrize("num_rows", [1, 63, 64, 65, 1025])
@pytest.mark.parametrize("batch", [1, 7, 100])
def test_every_row_is_visited_once(num_rows, batch):
    assert sorted(visited(num_rows, batch).tolist()) == list(range(num_rows))


def test_the_order_depends_on_seed_and_epoch_only():
    orders = [visited(1000, 50, seed, epoch) for seed in (0, 1) for epoch in (0, 1)]
    assert len({tuple(order) for order in orders}) == 4
    assert np.array_equal(orders[0][700:], visited(1000, 35, start=20))


@pytest.mark.parametrize("window_rows", [64, 4096])
def test_neighbours_on_disk_are_not_neighbours_in_a_batch(window_rows, monkeypatch):
    """Also where several windows are needed: rows that follow each other in a file are much alike."""
    monkeypatch.setattr(batches_module, "WINDOW_ROWS", window_rows)
    rows = visited(4096, 64)
    assert np.mean(np.abs(np.diff(rows)) == 1) < 0.1
    # each quarter of the epoch draws on the whole file
    assert all(abs(quarter.mean() / 2048 - 1) < 0.2 for quarter in np.array_split(rows, 4))


def test_one_window_is_held_at_a_time(monkeypatch):
    monkeypatch.undo()
    tracemalloc.start()
    try:
        for start in (0, 5 * 10**7):
            # 8 GB of numbers, if they were all drawn
            assert len(next(ClickBatches(range(10**9), 10, 0).rows(0, start))) == 10
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 2 * 8 * WINDOW_ROWS + 2**24  # the window, once more while it is put together, and its blocks


def test_batches_from_the_middle_of_an_epoch_are_those_of_the_whole():
    train = load_clicks("synthetic-small").split("train")
    batches = ClickBatches(train, 1000, seed=3)
    first, second = list(batches), list(batches)  # an epoch each
    assert len(first) == len(batches) == -(-len(train) // 1000)
    assert not torch.equal(first[0][0], second[0][0])
    for whole, again in zip(second[2:], batches.at(1, 2), strict=True):
        torch.testing.assert_close(whole, again, rtol=0, atol=0)
    assert torch.cat([label for _, _, label in in_order(train, 999)]).tolist() == train.label.tolist()


@pytest.mark.parametrize("decimals", [8, 1], ids=["distinct", "many ties"])
def test_click_metrics_agree_with_scikit_learn(decimals):
    rng = np.random.default_rng(0)
    label = rng.integers(0, 2, 5000)
    logit = np.round(rng.normal(size=5000) + label, decimals)
    scores = click_metrics(label, logit)
    probability = 1 / (1 + np.exp(-logit))
    assert scores["auc"] == pytest.approx(roc_auc_score(label, logit), abs=1e-12)
    assert scores["log_loss"] == pytest.approx(log_loss(label, probability), abs=1e-12)
    assert scores["accuracy"] == ((probability > 0.5) == label).mean()
    base = log_loss(label, np.full(5000, label.mean()))
    assert scores["normalised_entropy"] == pytest.approx(scores["log_loss"] / base, abs=1e-12)


def test_an_extreme_logit_has_a_finite_loss_and_one_class_alone_has_no_auc():
    assert click_metrics(np.array([1, 0]), np.array([-800.0, 800.0]))["log_loss"] == pytest.approx(800)
    with pytest.raises(UserError, match="3 positive and 0 negative"):
        click_metrics(np.ones(3), np.zeros(3))

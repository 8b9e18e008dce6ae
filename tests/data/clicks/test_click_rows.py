"""Rows of clicks: the generator's law, teacher and limit; batches with each row once per epoch; scores."""

import dataclasses
import gzip
import subprocess
import sys
import tracemalloc

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from sklearn.metrics import log_loss, roc_auc_score

from labkit.data.clicks import batches as batches_module, load_clicks
from labkit.data.clicks.batches import WINDOW_ROWS, ClickBatches, click_metrics, in_order
from labkit.data.clicks.generate import (
    BLOCK_ROWS,
    SYNTHETIC,
    ClickGenerator,
    GeneratorConfig,
    ZipfSampler,
    auc,
    write_clicks,
)
from labkit.errors import UserError

SMALL = GeneratorConfig(num_rows=(50, 100, 400, 1000))
PARTS = ("counts", "missing", "dense", "categorical", "label", "probability")


def rows_of(config: GeneratorConfig, split: str, rows: int) -> dict[str, np.ndarray]:
    blocks = list(ClickGenerator(config).blocks(split, rows))
    return {part: np.concatenate([getattr(block, part) for block in blocks]) for part in PARTS}


def test_categories_follow_zipfs_law_and_miss_at_their_rate():
    sampler = ZipfSampler(100, 1.0, 0.1, np.random.default_rng(0))
    draws = 200_000
    counts = np.bincount(sampler.draw(np.random.default_rng(1), draws), minlength=100)
    shares = np.arange(1, 100.0) ** -1.0
    expected = np.concatenate([[0.1 * draws], np.sort(shares / shares.sum() * 0.9 * draws)])
    found = np.concatenate([counts[:1], np.sort(counts[1:])])
    # Five standard deviations of a count, and 5 more where sorting favours neighbours.
    assert (np.abs(found - expected) < 5 * np.sqrt(expected) + 5).all()


def test_rows_are_those_of_their_seed_and_split_on_any_number_of_threads_and_however_many_are_made():
    program = f"""
import hashlib
from labkit.data.clicks.generate import ClickGenerator, GeneratorConfig
block = next(ClickGenerator({SMALL!r}).blocks("train", 8192))
print(hashlib.sha256(block.label.tobytes() + block.dense.tobytes() + block.probability.tobytes()).hexdigest())
"""
    marks = set()
    for threads in ("1", "4"):
        environment = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), threads)
        marks.add(subprocess.check_output([sys.executable, "-c", program], env=environment))
    assert len(marks) == 1
    short, long = rows_of(SMALL, "train", 2000), rows_of(SMALL, "train", BLOCK_ROWS + 50)
    for part in PARTS:
        np.testing.assert_array_equal(short[part], long[part][:2000])
    for other in (rows_of(SMALL, "test", 2000), rows_of(dataclasses.replace(SMALL, seed=1), "train", 2000)):
        assert not set(map(bytes, short["dense"])) & set(map(bytes, other["dense"]))


@pytest.mark.parametrize(("target", "base_rate"), [(0.65, 0.25), (0.80, 0.25), (0.90, 0.05)])
def test_the_true_probabilities_reach_the_auc_and_the_base_rate_that_were_asked_for(target, base_rate):
    rows = rows_of(dataclasses.replace(SMALL, bayes_auc=target, base_rate=base_rate), "test", 60_000)
    # 0.01 is about four standard deviations of an AUC over 60,000 rows, a quarter of them clicks, and of
    # the calibration.
    assert roc_auc_score(rows["label"], rows["probability"]) == pytest.approx(target, abs=0.01)
    assert rows["label"].mean() == pytest.approx(base_rate, abs=0.01)


def test_an_impossible_config_names_the_field():
    bad = {"num_rows": (10, 1), "bayes_auc": 1.2, "base_rate": 0.0, "dense_dim": 0, "seed": -1, "zipf_exponent": -1.0}
    for name, value in bad.items():
        with pytest.raises(UserError, match=name):
            GeneratorConfig(**{name: value})


def test_a_generated_log_is_prepared_once_memory_mapped_and_tells_its_limit(tmp_path, monkeypatch):
    seen = []
    log = load_clicks("synthetic-small", cache_dir=tmp_path, progress=lambda fraction, text: seen.append(fraction))
    assert seen == sorted(seen) and seen[-1] == 1.0
    train = log.split("train")
    assert isinstance(train.dense, np.memmap) and not train.dense.flags.writeable
    assert (train.dense.dtype, train.categorical.dtype, train.label.dtype) == (np.float32, np.int32, np.uint8)
    assert train.dense.shape == (50_000, 13) and train.categorical.shape == (50_000, 8, 1)
    assert (train.categorical.max((0, 2)) < log.table_rows).all()
    blocks = ClickGenerator(SYNTHETIC["synthetic-small"]).blocks("test", 6000)
    truth = np.concatenate([block.probability for block in blocks])
    assert log.info["bayes_auc"] == pytest.approx(auc(np.array(log.split("test").label), truth), abs=1e-12)
    assert log.info["bayes_auc"] == pytest.approx(0.80, abs=0.02)  # four standard deviations on 6,000 rows
    monkeypatch.setattr("labkit.data.clicks.load.ClickGenerator", lambda *_: pytest.fail("prepared again"))
    again = load_clicks("synthetic-small", cache_dir=tmp_path)
    assert again.fingerprint == log.fingerprint and again.folder == log.folder


def test_options_and_seed_make_another_log_and_bad_ones_are_refused(tmp_path, monkeypatch):
    sizes = {"train_rows": 500, "validation_rows": 100, "test_rows": 100}
    changes = ({}, {"seed": 1}, {"pooling_factor": 3, "dense_dim": 2}, {"max_rows_per_table": 100})
    logs = [load_clicks("synthetic-small", cache_dir=tmp_path, **sizes, **options) for options in changes]
    assert len({log.folder for log in logs}) == 4
    assert logs[2].split("test").categorical.shape == (100, 8, 3) and logs[2].split("test").dense.shape == (100, 2)
    assert logs[3].table_rows == (50, 84, 100, 100, 100, 100, 100, 100)
    assert logs[3].split("train").categorical.max() < 100
    with pytest.raises(UserError, match="'dens_dim' is unknown: did you mean 'dense_dim'"):
        load_clicks("synthetic-small", cache_dir=tmp_path, dens_dim=3)
    monkeypatch.setattr("labkit.data.store.free_disk_bytes", lambda folder: 1000)
    with pytest.raises(UserError, match="needs about"):
        load_clicks("synthetic-small", cache_dir=tmp_path)


def write(path, rows=300, file_format="criteo", **options):
    write_clicks(path, rows, GeneratorConfig(**options), file_format, lambda *_: None)
    return path


def test_criteo_rows_are_real_criteo_rows_and_a_seed_means_the_same_bytes_packed_or_not(tmp_path):
    plain = write(tmp_path / "a.tsv").read_bytes()
    lines = [line.split(b"\t") for line in plain.splitlines()]
    integers, categories = ([value for line in lines for value in line[part]] for part in (slice(1, 14), slice(14, 40)))
    assert {len(line) for line in lines} == {40} and len(lines) == 300
    assert any(value.startswith(b"-") for value in integers)
    assert 0.1 < integers.count(b"") / len(integers) < 0.3
    assert 0 < categories.count(b"") / len(categories) < 0.05
    assert all(len(value) in (0, 8) for value in categories)
    packed = write(tmp_path / "a.tsv.gz").read_bytes()
    assert gzip.decompress(packed) == plain and write(tmp_path / "b.tsv.gz").read_bytes() == packed
    assert write(tmp_path / "c.tsv", seed=1).read_bytes() != plain


def test_parquet_has_any_number_of_features_and_what_a_format_cannot_hold_is_refused(tmp_path):
    options = {"dense_dim": 2, "num_rows": (5, 9)}
    table = pq.read_table(write(tmp_path / "a.parquet", file_format="parquet", **options))
    assert table.column_names == ["label", "I1", "I2", "C1", "C2"] and table.num_rows == 300
    for words, wrong in {"13 dense and 26": {"dense_dim": 2}, "pooling_factor is 2": {"pooling_factor": 2}}.items():
        with pytest.raises(UserError, match=words):
            write(tmp_path / "refused", **wrong)
    assert not (tmp_path / "refused").exists()


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

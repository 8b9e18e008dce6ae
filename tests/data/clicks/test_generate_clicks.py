"""The generator: its law of frequencies, its teacher, its limit, that a seed means the same rows, and rows as files."""

from __future__ import annotations

import dataclasses
import gzip
import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from labkit.data.clicks.generate import (
    BLOCK_ROWS,
    ClickGenerator,
    GeneratorConfig,
    ZipfSampler,
)
from labkit.data.clicks.synthetic import write_clicks
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


def test_a_seed_means_the_same_rows_on_any_number_of_threads_and_another_seed_other_ones(tmp_path):
    program = f"""
import hashlib
from labkit.data.clicks.generate import ClickGenerator, GeneratorConfig
block = next(ClickGenerator({SMALL!r}).blocks("train", 8192))
print(hashlib.sha256(block.label.tobytes() + block.dense.tobytes() + block.probability.tobytes()).hexdigest())
"""
    marks = set()
    for threads in ("1", "4"):
        environment = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), threads)
        command = [sys.executable, "-c", program]
        marks.add(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
    assert len(marks) == 1
    other = rows_of(dataclasses.replace(SMALL, seed=1), "train", 3000)
    assert (other["categorical"] != rows_of(SMALL, "train", 3000)["categorical"]).any()


def test_a_shorter_log_is_the_beginning_of_a_longer_one_and_splits_have_rows_of_their_own():
    short, long = rows_of(SMALL, "train", 100), rows_of(SMALL, "train", BLOCK_ROWS + 50)
    for part in PARTS:
        np.testing.assert_array_equal(short[part], long[part][:100])
    assert not set(map(bytes, long["dense"])) & set(map(bytes, rows_of(SMALL, "test", 2000)["dense"]))


@pytest.mark.parametrize(("target", "base_rate"), [(0.65, 0.25), (0.80, 0.25), (0.90, 0.05)])
def test_the_true_probabilities_reach_the_auc_and_the_base_rate_that_were_asked_for(target, base_rate):
    rows = rows_of(dataclasses.replace(SMALL, bayes_auc=target, base_rate=base_rate), "test", 60_000)
    # 0.01 is about four standard deviations of an AUC over 60,000 rows, a quarter of them clicks, and of
    # the calibration.
    assert roc_auc_score(rows["label"], rows["probability"]) == pytest.approx(target, abs=0.01)
    assert rows["label"].mean() == pytest.approx(base_rate, abs=0.01)


def test_the_teacher_can_be_learnt_and_its_pairs_are_worth_having():
    train, test = rows_of(SMALL, "train", 30_000), rows_of(SMALL, "test", 30_000)
    frequent = [np.argsort(-np.bincount(train["categorical"][:, table, 0]))[:20] for table in range(4)]

    def features(rows: dict[str, np.ndarray]) -> np.ndarray:
        one_hot = [rows["categorical"][:, table, 0, None] == frequent[table] for table in range(4)]
        return np.concatenate([rows["dense"], np.abs(rows["dense"]), *one_hot], axis=1)

    model = LogisticRegression(max_iter=200).fit(features(train), train["label"])
    linear = roc_auc_score(test["label"], model.predict_proba(features(test))[:, 1])
    # A linear model sees the first-order effects only: far above chance, short of what pairs would add.
    assert 0.70 < linear < roc_auc_score(test["label"], test["probability"]) - 0.01


def test_dense_features_are_standardised_logarithms_of_the_counts():
    rows = rows_of(SMALL, "train", 40_000)
    assert (rows["dense"][rows["missing"]] == 0).all() and rows["missing"].any()
    known = np.ma.masked_array(rows["dense"], rows["missing"])
    np.testing.assert_allclose(known.mean(0), 0, atol=0.05)
    np.testing.assert_allclose(known.std(0), 1, atol=0.05)
    assert (rows["counts"] == np.floor(rows["counts"])).all() and (rows["counts"] < 0).any()


def test_any_number_of_features_tables_and_lookups():
    config = GeneratorConfig(dense_dim=3, num_rows=(2, 10), pooling_factor=5)
    block = next(ClickGenerator(config).blocks("train", 100))
    assert block.dense.shape == (100, 3) and block.categorical.shape == (100, 2, 5)
    assert block.categorical.min() >= 0 and (block.categorical.max((0, 2)) < (2, 10)).all()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"num_rows": ()}, "num_rows"),
        ({"num_rows": (10, 1)}, "num_rows"),
        ({"bayes_auc": 1.2}, "bayes_auc"),
        ({"base_rate": 0.0}, "base_rate"),
        ({"dense_dim": 0}, "dense_dim"),
        ({"seed": -1}, "seed"),
        ({"zipf_exponent": -1.0}, "zipf_exponent"),
    ],
)
def test_an_impossible_config_names_the_field(change, named):
    with pytest.raises(UserError, match=named):
        GeneratorConfig(**change)


def write(path, rows=300, file_format="criteo", **options):
    write_clicks(path, rows, GeneratorConfig(**options), file_format, lambda *_: None)
    return path


def test_criteo_rows_are_real_criteo_rows(tmp_path):
    lines = write(tmp_path / "a.tsv").read_bytes().splitlines()
    integers = [value for line in lines for value in line.split(b"\t")[1:14]]
    categories = [value for line in lines for value in line.split(b"\t")[14:]]
    assert len(integers) == 300 * 13 and len(categories) == 300 * 26
    assert any(value.startswith(b"-") for value in integers)
    assert 0.1 < integers.count(b"") / len(integers) < 0.3
    assert 0 < categories.count(b"") / len(categories) < 0.05
    assert all(len(value) in (0, 8) for value in categories)


def test_the_same_seed_writes_the_same_bytes_packed_or_not(tmp_path):
    plain = write(tmp_path / "a.tsv").read_bytes()
    packed = write(tmp_path / "a.tsv.gz").read_bytes()
    assert gzip.decompress(packed) == plain
    assert write(tmp_path / "b.tsv.gz").read_bytes() == packed
    assert write(tmp_path / "c.tsv", seed=1).read_bytes() != plain


def test_csv_and_parquet_have_a_header_and_any_number_of_features(tmp_path):
    options = {"dense_dim": 2, "num_rows": (5, 9)}
    text = write(tmp_path / "a.csv", file_format="csv", **options).read_text().splitlines()
    assert text[0] == "label,I1,I2,C1,C2" and len(text) == 301
    table = pq.read_table(write(tmp_path / "a.parquet", file_format="parquet", **options))
    assert table.column_names == ["label", "I1", "I2", "C1", "C2"] and table.num_rows == 300


@pytest.mark.parametrize(
    ("file_format", "options", "words"),
    [
        ("criteo", {"dense_dim": 2}, "13 dense and 26 categorical"),
        ("csv", {"pooling_factor": 2}, "pooling_factor is 2"),
        ("orc", {}, "'orc' is unknown"),
    ],
)
def test_what_a_format_cannot_hold_is_refused(tmp_path, file_format, options, words):
    with pytest.raises(UserError, match=words):
        write(tmp_path / "a", file_format=file_format, **options)
    assert not list(tmp_path.iterdir())

"""CSV, TSV and Parquet with a schema: the worked example, splits, missing values, buckets."""

from __future__ import annotations

import gzip
import os
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from labkit.data import store
from labkit.data.clicks import load_clicks
from labkit.data.clicks.generate import signed_log

SCHEMA = """
dense = ["price", "age"]
categorical = ["city"]
min_count = 1
missing = ["?"]
label = { column = "clicked", positive = ["yes"], negative = ["no"] }
"""


def frame(rows: int = 200) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "clicked": rng.choice(["yes", "no"], rows),
            "unused": [f'with "quotes", {row}' for row in range(rows)],
            "price": rng.integers(0, 1000, rows).astype(str),
            "age": rng.random(rows).round(3).astype(str),
            "city": rng.choice(["Rome", "Oslo", "Lima"], rows),
        }
    )


@pytest.fixture
def schema(tmp_path) -> Path:
    path = tmp_path / "schema.toml"
    path.write_text(SCHEMA)
    return path


def load(path: Path, schema: Path, **options):
    return load_clicks(str(path), schema=schema, cache_dir=path.parent / "cache", **options)


def everything(log) -> list[np.ndarray]:
    return [np.array(part) for name in ("train", "validation", "test") for part in vars(log.split(name)).values()]


def test_adult_is_known_by_its_header_and_split_as_published(shared_data, tmp_path):
    path = shared_data / "adult" / "adult.csv"
    log = load_clicks(str(path), cache_dir=tmp_path)
    train, validation, test = (log.split(name) for name in ("train", "validation", "test"))
    assert len(test) == 16_281 and len(train) + len(validation) == 32_561
    table = pd.read_csv(path, sep=", ", engine="python")
    np.testing.assert_array_equal(test.label, table["income"][32_561:].isin([">50K."]))
    assert int(train.label.sum() + validation.label.sum()) == int((table["income"] == ">50K").sum())
    hours = table["hours-per-week"][32_561:]
    assert np.corrcoef(hours, test.dense[:, log.dense_names.index("hours-per-week")])[0, 1] == pytest.approx(
        1, abs=1e-6
    )
    # "?" is a category of its own, not one more value of the same row as rare ones.
    work = test.categorical[:, log.categorical_names.index("workclass"), 0]
    assert len(set(work[(table["workclass"][32_561:] == "?").to_numpy()])) == 1
    np.testing.assert_allclose(train.dense.mean(0, dtype=float), 0, atol=1e-4)
    np.testing.assert_allclose(train.dense.std(0, dtype=float), 1, atol=1e-4)


def test_text_and_parquet_prepare_to_the_same(schema, tmp_path):
    table = frame()
    table.to_csv(tmp_path / "a.csv", index=False)
    table.to_csv(tmp_path / "b.tsv", index=False, sep="\t")
    (tmp_path / "c.csv").write_bytes(gzip.compress((tmp_path / "a.csv").read_bytes()))
    table.astype({"price": int, "age": float}).to_parquet(tmp_path / "d.parquet")
    (tmp_path / "e.csv").write_bytes(b"\xef\xbb\xbf" + (tmp_path / "a.csv").read_bytes().replace(b"\n", b"\r\n"))
    (tmp_path / "f.csv").write_bytes((tmp_path / "a.csv").read_bytes().replace(b"\n", b"\r"))
    first = everything(load(tmp_path / "a.csv", schema))
    for name in ("b.tsv", "c.csv", "d.parquet", "e.csv", "f.csv"):
        for one, other in zip(first, everything(load(tmp_path / name, schema)), strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_file_without_header_takes_its_names_from_the_schema(schema, tmp_path):
    table = frame()
    table.to_csv(tmp_path / "a.csv", index=False)
    table.to_csv(tmp_path / "b.csv", index=False, header=False)
    headless = tmp_path / "headless.toml"
    headless.write_text(f"names = {list(table.columns)}\n" + SCHEMA)
    for one, other in zip(
        everything(load(tmp_path / "a.csv", schema)),
        everything(load(tmp_path / "b.csv", headless)),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)


def test_missing_values_are_the_mean_and_a_category(schema, tmp_path):
    table = frame()
    table.loc[:20, "price"] = "?"
    table.loc[:20, "city"] = ""
    table.to_csv(tmp_path / "a.csv", index=False)
    log = load(tmp_path / "a.csv", schema)
    assert log.table_rows == (5,)  # unknown, three cities, missing
    dense = np.concatenate([log.split(name).dense for name in ("train", "validation", "test")])
    assert (dense[:, 0] == 0).sum() == 21


def test_the_last_rows_can_be_the_test_rows(schema, tmp_path):
    table = frame()
    table.to_csv(tmp_path / "a.csv", index=False)
    schema.write_text(SCHEMA + "split = { last_rows = 50, validation = 0.2 }")
    log = load(tmp_path / "a.csv", schema)
    assert [len(log.split(name)) for name in ("train", "validation", "test")] == [120, 30, 50]
    np.testing.assert_array_equal(log.split("test").label, table["clicked"][150:] == "yes")


def test_a_column_can_say_the_split(schema, tmp_path):
    table = frame()
    table["fold"] = np.resize(["a", "b", "b", "c"], 200)
    table.to_csv(tmp_path / "a.csv", index=False)
    schema.write_text(SCHEMA + 'split = { column = "fold", validation_values = ["a"], test_values = ["c"] }')
    log = load(tmp_path / "a.csv", schema)
    np.testing.assert_array_equal(log.split("test").label, table["clicked"][table["fold"] == "c"] == "yes")
    np.testing.assert_array_equal(log.split("validation").label, table["clicked"][table["fold"] == "a"] == "yes")


def test_a_random_split_is_the_seeds(schema, tmp_path):
    frame().to_csv(tmp_path / "a.csv", index=False)
    logs = [load(tmp_path / "a.csv", schema, seed=seed) for seed in (0, 0, 1)]
    assert logs[0].folder == logs[1].folder != logs[2].folder
    assert [len(logs[0].split(name)) for name in ("train", "validation", "test")] == [162, 18, 20]
    assert (logs[0].split("test").dense != logs[2].split("test").dense).any()


def test_vocabulary_means_and_buckets_come_from_the_training_rows(schema, tmp_path):
    table = frame()
    changed = table.copy()
    changed.loc[150:, "city"] = "Mars"
    changed.loc[150:, "price"] = "1000000"
    schema.write_text(SCHEMA + "split = { last_rows = 50 }\nbucketise = { price = 4 }")
    logs = []
    for name, content in (("a.csv", table), ("b.csv", changed)):
        content.to_csv(tmp_path / name, index=False)
        logs.append(load(tmp_path / name, schema))
    for one, other in zip(*(vars(log.split("train")).values() for log in logs), strict=True):
        np.testing.assert_array_equal(one, other)
    assert (logs[1].split("test").categorical[:, 0] == 0).all()
    assert (logs[1].split("test").categorical[:, 1] == 4).all()


def test_buckets_hold_equal_numbers_of_rows_and_row_0_the_missing(schema, tmp_path):
    table = frame(2000)
    table.loc[:99, "price"] = ""
    table.to_csv(tmp_path / "a.csv", index=False)
    schema.write_text(SCHEMA + "bucketise = { price = 5 }")
    log = load(tmp_path / "a.csv", schema)
    assert log.categorical_names == ["city", "price (bucket)"] and log.table_rows[1] == 6
    counts = np.bincount(log.split("train").categorical[:, 1, 0], minlength=6)
    assert counts[1:] == pytest.approx(counts[1:].mean(), rel=0.03)  # ties on whole numbers
    assert 0 < counts[0] <= 100


def test_a_column_with_a_long_tail_can_be_a_logarithm(schema, tmp_path):
    table = frame()
    table.to_csv(tmp_path / "a.csv", index=False)
    schema.write_text(SCHEMA + 'log = ["price"]\nsplit = { last_rows = 50 }')
    found = load(tmp_path / "a.csv", schema).split("test").dense[:, 0]
    assert np.corrcoef(found, signed_log(table["price"][150:].astype(float)))[0, 1] == pytest.approx(1, abs=1e-6)


def test_the_second_start_reads_nothing_and_a_changed_source_is_noticed(schema, tmp_path, monkeypatch):
    path = tmp_path / "a.csv"
    frame().to_csv(path, index=False)
    then = time.time() - 60
    os.utime(path, (then, then))
    first = load(path, schema)
    with monkeypatch.context() as patch:
        patch.setattr("labkit.data.clicks.load.prepare_table", lambda *_, **__: pytest.fail("prepared again"))
        read, plain = [], store.hash_file
        patch.setattr(store, "hash_file", lambda file, size: read.append(file) or plain(file, size))
        assert load(path, schema).fingerprint == first.fingerprint
        assert path.resolve() not in read
    os.utime(path)  # only touched: read, and found to be the same
    assert load(path, schema).folder == first.folder
    text = path.read_text()
    path.write_text(text.replace("Rome", "Bonn"))  # the same size
    assert load(path, schema).folder != first.folder
    schema.write_text(SCHEMA + 'log = ["price"]')
    assert load(path, schema).fingerprint not in (first.fingerprint,)


def test_options_replace_what_the_schema_says(schema, tmp_path):
    frame().to_csv(tmp_path / "a.csv", index=False)
    assert load(tmp_path / "a.csv", schema, min_count=10**6).table_rows == (1,)

"""Preparing tables and Criteo's layout: what is read, splits, vocabularies, buckets, and memory."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest

from labkit.data.clicks import columns, load_clicks
from labkit.data.clicks.columns import estimate_rows
from labkit.data.clicks.criteo import criteo_files, is_criteo
from labkit.data.clicks.generate import ClickGenerator, GeneratorConfig, signed_log
from labkit.data.clicks.prepared import SPLITS
from labkit.data.clicks.synthetic import category_tokens


def arrays(log) -> list[np.ndarray]:
    """Dense, categorical and label of all splits together."""
    return [np.concatenate(parts) for parts in zip(*(vars(log.split(name)).values() for name in SPLITS), strict=True)]


def assert_same(one, other) -> None:
    for first, second in zip(arrays(one), arrays(other), strict=True):
        np.testing.assert_array_equal(first, second)


def sizes(log) -> list[int]:
    return [len(log.split(name)) for name in SPLITS]


def test_the_real_sample_of_criteo_is_prepared_as_it_stands(shared_data, tmp_path):
    path = shared_data / "criteo_sample" / "train_200.tsv"
    log = load_clicks(str(path), cache_dir=tmp_path, min_count=1)
    assert sum(sizes(log)) == 200 and sizes(log)[0] == 171
    lines = [line.split("\t") for line in path.read_text().splitlines()]
    dense, categorical, label = arrays(log)
    assert label.tolist() == [int(line[0]) for line in lines]
    mean, deviation = np.array(log.info["dense_mean"]), np.array(log.info["dense_sd"])
    for row in (0, 1, 170):
        for index in range(13):
            text = lines[row][1 + index]
            expected = (signed_log(np.float64(text)) - mean[index]) / deviation[index] if text else 0.0
            assert dense[row, index] == pytest.approx(expected, abs=1e-4)
    # With min_count=1 equal categories have equal rows, and others not.
    for index in range(26):
        values, rows = np.unique([line[14 + index] for line in lines[:171]], return_inverse=True)
        assert len({*zip(rows.tolist(), categorical[:171, index, 0].tolist(), strict=True)}) == len(values)
        assert log.table_rows[index] == len(values) + 1


def test_adult_is_known_by_its_header_and_split_as_published(shared_data, tmp_path):
    path = shared_data / "adult" / "adult.csv"
    log = load_clicks(str(path), cache_dir=tmp_path)
    train, validation, test = (log.split(name) for name in SPLITS)
    assert len(test) == 16_281 and len(train) + len(validation) == 32_561
    table = pd.read_csv(path, sep=", ", engine="python")
    np.testing.assert_array_equal(test.label, table["income"][32_561:].isin([">50K."]))
    assert int(train.label.sum() + validation.label.sum()) == int((table["income"] == ">50K").sum())
    hours = test.dense[:, log.dense_names.index("hours-per-week")]
    assert np.corrcoef(table["hours-per-week"][32_561:], hours)[0, 1] == pytest.approx(1, abs=1e-6)
    # "?" is a category of its own, not one more value of the same row as rare ones.
    work = test.categorical[:, log.categorical_names.index("workclass"), 0]
    assert len(set(work[(table["workclass"][32_561:] == "?").to_numpy()])) == 1
    np.testing.assert_allclose(train.dense.mean(0, dtype=float), 0, atol=1e-4)
    np.testing.assert_allclose(train.dense.std(0, dtype=float), 1, atol=1e-4)


@pytest.mark.parametrize("block_bytes", [20_000, 2**22])
def test_what_is_written_is_read_back_whatever_the_blocks(generated, tmp_path, monkeypatch, block_bytes):
    monkeypatch.setattr(columns, "BLOCK_BYTES", block_bytes)
    block = next(ClickGenerator(GeneratorConfig()).blocks("train", 3000))
    log = load_clicks(str(generated), cache_dir=tmp_path, min_count=1)
    dense, categorical, label = arrays(log)
    np.testing.assert_array_equal(label, block.label)  # in the order of time
    logs = np.where(block.missing, np.nan, signed_log(block.counts.astype(np.float64)))
    expected = (logs - log.info["dense_mean"]) / log.info["dense_sd"]
    np.testing.assert_allclose(dense, np.nan_to_num(expected), atol=1e-5)
    for table in (0, 3, 25):  # equal names have equal rows
        names = category_tokens(table, GeneratorConfig().num_rows[table]).to_pylist()
        made, train = block.categorical[:2571, table, 0], categorical[:2571, table, 0]
        assert len({*zip(made.tolist(), train.tolist(), strict=True)}) == len({names[row] for row in made})
    text = generated.read_text()
    assert "\t-1\t" in text and "\t\t" in text


def test_gzip_line_ends_and_empty_lines_change_nothing(generated, tmp_path):
    content = generated.read_bytes()
    ways = {"packed.tsv": gzip.compress(content), "windows.txt": content.replace(b"\n", b"\r\n") + b"\r\n\n\n"}
    plain = load_clicks(str(generated), cache_dir=tmp_path)
    for name, other in (ways | {"unended.txt": content[:-1]}).items():
        (tmp_path / name).write_bytes(other)
        assert_same(plain, load_clicks(str(tmp_path / name), cache_dir=tmp_path))


def test_text_of_every_kind_and_parquet_prepare_to_the_same(prepare, frame, tmp_path, monkeypatch):
    table = frame()
    table.loc[7, "unused"] = "two\nlines"
    first = prepare(table)
    content = (tmp_path / "a.csv").read_bytes()
    table.to_csv(tmp_path / "b.tsv", index=False, sep="\t")
    table.astype({"price": int, "age": float}).to_parquet(tmp_path / "d.parquet")
    (tmp_path / "c.csv").write_bytes(gzip.compress(content))
    (tmp_path / "e.csv").write_bytes(b"\xef\xbb\xbf" + content.replace(b"\n", b"\r\n"))
    (tmp_path / "f.csv").write_bytes(content.replace(b"\n", b"\r"))
    for name in ("b.tsv", "c.csv", "d.parquet", "e.csv", "f.csv"):
        assert_same(first, prepare(None, name=name))
    headless = b"\xef\xbb\xbf" + content.partition(b"\n")[2]
    assert_same(first, prepare(headless, f"names = {list(table.columns)}", name="g.csv"))
    monkeypatch.setattr(columns, "BLOCK_BYTES", 100)  # some cuts would be inside quotes
    (tmp_path / "h.csv").write_bytes(content)
    assert_same(first, prepare(None, name="h.csv"))


def test_day_files_come_in_their_order_and_the_last_is_for_validation_and_test(generated, tmp_path):
    assert sizes(load_clicks(str(generated), cache_dir=tmp_path)) == [2571, 214, 215]
    lines = generated.read_bytes().splitlines(keepends=True)
    days = tmp_path / "days"
    days.mkdir()
    (days / "day_0").write_bytes(b"".join(lines[:1000]))
    (days / "day_2.gz").write_bytes(gzip.compress(b"".join(lines[1000:2500])))
    (days / "day_10").write_bytes(b"".join(lines[2500:]))
    (days / "README").write_text("no day")
    assert [file.name for file in criteo_files(days)] == ["day_0", "day_2.gz", "day_10"]
    log = load_clicks(str(days), cache_dir=tmp_path)
    assert sizes(log) == [2500, 250, 250]
    np.testing.assert_array_equal(arrays(log)[2], next(ClickGenerator(GeneratorConfig()).blocks("train", 3000)).label)


def test_the_last_rows_a_column_the_order_or_the_seed_say_the_split(prepare, frame):
    table = frame()
    table["fold"] = np.resize(["a", "b", "b", "c"], 200)
    clicked = table["clicked"] == "yes"
    last = prepare(table, "split = { last_rows = 50, validation = 0.2 }")
    assert sizes(last) == [120, 30, 50]
    np.testing.assert_array_equal(last.split("test").label, clicked[150:])
    said = prepare(None, 'split = { column = "fold", validation_values = ["a"], test_values = ["c"] }')
    np.testing.assert_array_equal(said.split("test").label, clicked[table["fold"] == "c"])
    np.testing.assert_array_equal(said.split("validation").label, clicked[table["fold"] == "a"])
    timed = prepare(None, "split = { by_time = true, validation = 0.05, test = 0.1 }")
    assert sizes(timed) == [170, 10, 20]
    np.testing.assert_array_equal(arrays(timed)[2], clicked)
    drawn = [prepare(None, seed=seed) for seed in (0, 0, 1)]
    assert drawn[0].folder == drawn[1].folder != drawn[2].folder
    assert sizes(drawn[0]) == [162, 18, 20]
    assert (drawn[0].split("test").dense != drawn[2].split("test").dense).any()


def test_missing_values_are_the_mean_and_a_category(prepare, frame):
    table = frame()
    table.loc[:20, "price"] = "?"
    table.loc[:20, "city"] = ""
    log = prepare(table)
    assert log.table_rows == (5,)  # unknown, three cities, missing
    assert (arrays(log)[0][:, 0] == 0).sum() == 21


def test_vocabulary_means_and_buckets_come_from_the_training_rows(prepare, frame):
    changed = frame()
    changed.loc[150:, "city"] = "Mars"
    changed.loc[150:, "price"] = "1000000"
    more = "split = { last_rows = 50 }\nbucketise = { price = 4 }"
    logs = [prepare(frame(), more), prepare(changed, more, name="b.csv")]
    for one, other in zip(*(vars(log.split("train")).values() for log in logs), strict=True):
        np.testing.assert_array_equal(one, other)
    assert (logs[1].split("test").categorical[:, 0] == 0).all()
    assert (logs[1].split("test").categorical[:, 1] == 4).all()


def test_buckets_hold_equal_numbers_of_rows_and_row_0_the_missing(prepare, frame):
    table = frame(2000)
    table.loc[:99, "price"] = ""
    log = prepare(table, "bucketise = { price = 5 }")
    assert log.categorical_names == ["city", "price (bucket)"] and log.table_rows[1] == 6
    counts = np.bincount(log.split("train").categorical[:, 1, 0], minlength=6)
    assert counts[1:] == pytest.approx(counts[1:].mean(), rel=0.03)  # ties on whole numbers
    assert 0 < counts[0] <= 100


def test_a_column_with_a_long_tail_can_be_a_logarithm(prepare, frame):
    table = frame()
    found = prepare(table, 'log = ["price"]\nsplit = { last_rows = 50 }').split("test").dense[:, 0]
    assert np.corrcoef(found, signed_log(table["price"][150:].astype(float)))[0, 1] == pytest.approx(1, abs=1e-6)
    table.loc[20, "price"] = "1e200"  # a wide spread is then no fault
    assert prepare(table, 'log = ["price"]').info["rows"] == 200


def test_integers_beyond_a_float_are_standardised_as_well_as_it_goes(prepare, frame, tmp_path):
    table = frame(40).assign(price=1_760_000_000_000_000_001 + 10**9 * np.arange(40))  # nanoseconds
    table.astype({"age": float}).to_parquet(tmp_path / "a.parquet")
    dense = prepare(None, "split = { last_rows = 4 }", name="a.parquet").split("test").dense
    assert np.allclose(np.diff(dense[:, 0]), np.diff(dense[:, 0])[0], atol=1e-6) and dense[0, 0] > 1


def test_hashing_min_count_and_max_rows_bound_the_tables(generated, prepare, frame, tmp_path):
    def load(**options):
        return load_clicks(str(generated), cache_dir=tmp_path, **options)

    hashed = load(vocabulary="hash", max_rows_per_table=50)
    assert hashed.table_rows == (50,) * 26
    found = hashed.split("train").categorical
    assert found.min() >= 1 and found.max() == 49
    totals = [sum(load(**each).table_rows) for each in ({"min_count": 1}, {}, {"min_count": 50})]
    assert totals[0] > totals[1] > totals[2]
    assert sum(load(max_rows_per_table=10).table_rows) <= 260
    texts = prepare(frame(), vocabulary="hash", max_rows_per_table=1000)
    assert texts.table_rows == (1000,) and len(np.unique(arrays(texts)[1])) == 3


def test_the_second_start_prepares_nothing_and_a_changed_source_is_noticed(prepare, frame, tmp_path, monkeypatch):
    path, then = tmp_path / "a.csv", time.time() - 60
    frame().to_csv(path, index=False)
    os.utime(path, (then, then))
    first = prepare(None)
    with monkeypatch.context() as patch:
        patch.setattr("labkit.data.clicks.load.prepare_files", lambda *_, **__: pytest.fail("prepared again"))
        os.utime(path)  # only touched
        assert prepare(None).fingerprint == first.fingerprint
    path.write_text(path.read_text().replace("Rome", "Bonn"))  # the same size
    assert prepare(None).folder != first.folder
    assert prepare(None, 'log = ["price"]').fingerprint != first.fingerprint
    assert prepare(None, min_count=10**6).table_rows == (1,)  # an option replaces what the schema says


def test_the_preflight_comes_first_and_estimates_the_rows(generated, tmp_path):
    said = []
    load_clicks(str(generated), cache_dir=tmp_path, progress=lambda *words: said.append(words))
    assert said[0][0] == 0.0 and "rows" in said[0][1] and "of disk" in said[0][1]
    fractions = [fraction for fraction, _ in said]
    assert fractions == sorted(fractions)
    assert estimate_rows(generated) == pytest.approx(3000, rel=0.02)
    packed = tmp_path / "packed.gz"
    packed.write_bytes(gzip.compress(generated.read_bytes() * 4))
    assert estimate_rows(packed) == pytest.approx(12_000, rel=0.15)


def test_other_files_are_not_taken_for_criteo(generated, tmp_path):
    assert is_criteo(generated)
    header = "\t".join(f"column_{index}" for index in range(40)) + "\n"
    for text in (header + "\t".join(["1"] * 40), "1\t2\t3\n" * 30, "a,b\n1,2\n"):
        (tmp_path / "other.tsv").write_text(text)
        assert not is_criteo(tmp_path / "other.tsv")


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of resident memory from /proc")
def test_memory_does_not_grow_with_the_file(generated, tmp_path):
    """Preparing 64 times the rows takes no more memory: what grows is on disk."""
    program = """
import re, sys
from pathlib import Path
from labkit.data.clicks import columns, load_clicks, prepare, vocabulary
prepare.ROWS_AT_ONCE, columns.BLOCK_BYTES, vocabulary.MERGE_AT = 1024, 2**18, 2**12
load_clicks(sys.argv[1], cache_dir=Path(sys.argv[2]), max_rows_per_table=1000)
print(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
"""
    large = tmp_path / "large.txt"
    with large.open("wb") as out:
        for _ in range(64):
            with generated.open("rb") as file:
                shutil.copyfileobj(file, out)
    peaks = []
    for path in (generated, large):
        run = [sys.executable, "-c", program, str(path), str(tmp_path)]
        peaks.append(1024 * int(subprocess.run(run, capture_output=True, text=True, check=True).stdout))
    grown_bytes = peaks[1] - peaks[0]
    # 50 MB of text become 30 MB of prepared rows. The allocators settle about 12 MB above the small file's
    # peak; a copy of the text or of the arrays would be above the limit.
    assert grown_bytes < 25e6, f"{grown_bytes / 1e6:.1f} MB more"

"""Preparing tables and Criteo's layout: what is read, splits, vocabularies, buckets, and memory."""

import gzip
import os
import re
import subprocess
import sys
import threading
import time

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from labkit import DataError
from labkit.data.clicks import columns, load_clicks
from labkit.data.clicks.checks import hexadecimal
from labkit.data.clicks.generate import ClickGenerator, GeneratorConfig, signed_log
from labkit.data.clicks.load import criteo_files
from labkit.data.clicks.prepare import SPLITS, ValueCounter, _ahead, hashed_rows, scramble


def arrays(log) -> list[np.ndarray]:
    """Dense, categorical and label of all splits together."""
    return [np.concatenate(parts) for parts in zip(*(vars(log.split(name)).values() for name in SPLITS), strict=True)]


def assert_same(one, other) -> None:
    for first, second in zip(arrays(one), arrays(other), strict=True):
        # dense features are rounded once as differences from a median, of the first block, which may be another
        np.testing.assert_allclose(first, second, atol=1e-6, rtol=0)


def sizes(log) -> list[int]:
    return [len(log.split(name)) for name in SPLITS]


def test_the_real_sample_of_criteo_is_prepared_as_it_stands(shared_data, tmp_path):
    path = shared_data / "criteo_sample" / "train_200.tsv"
    log = load_clicks(str(path), cache_dir=tmp_path, min_count=1)
    assert sum(sizes(log)) == 200 and sizes(log)[0] == 171
    lines = [line.split("\t") for line in path.read_text().splitlines()]
    _, categorical, label = arrays(log)
    assert label.tolist() == [int(line[0]) for line in lines]
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
def test_what_is_written_is_read_back_whatever_the_blocks_packing_and_line_ends(
    generated, tmp_path, monkeypatch, block_bytes
):
    monkeypatch.setattr(columns, "BLOCK_BYTES", block_bytes)
    block = next(ClickGenerator(GeneratorConfig()).blocks("train", 3000))
    log = load_clicks(str(generated), cache_dir=tmp_path, min_count=1)
    dense, categorical, label = arrays(log)
    np.testing.assert_array_equal(label, block.label)  # in the order of time
    logs = np.where(block.missing, np.nan, signed_log(block.counts.astype(np.float64)))
    expected = (logs - log.info["dense_mean"]) / log.info["dense_sd"]
    np.testing.assert_allclose(dense, np.nan_to_num(expected), atol=1e-5)
    for table in (0, 3, 25):  # equal names have equal rows
        pairs = {*zip(block.categorical[:2571, table, 0].tolist(), categorical[:2571, table, 0].tolist(), strict=True)}
        assert len(pairs) == len(np.unique(block.categorical[:2571, table, 0]))
    content = generated.read_bytes()
    assert b"\t-1\t" in content and b"\t\t" in content
    ways = {"packed.tsv": gzip.compress(content), "windows.txt": content.replace(b"\n", b"\r\n") + b"\r\n\n\n"}
    for name, other in (ways | {"unended.txt": content[:-1]}).items():
        (tmp_path / name).write_bytes(other)
        assert_same(log, load_clicks(str(tmp_path / name), cache_dir=tmp_path, min_count=1))


@pytest.mark.parametrize("space", [" ", "\u00a0", "\x0b"])
def test_spaces_around_criteos_fields_are_not_part_of_them(generated, tmp_path, space):
    lines = generated.read_text().splitlines()[:500]
    first, log = None, tmp_path / "a.txt"
    for spaced in ((), (3, 499), range(1, 500)):
        for row in spaced:
            fields = lines[row].split("\t")
            lines[row] = "\t".join(f"{space}{field}{space}" if place in (0, 1, 14, 39) else field
                                   for place, field in enumerate(fields))  # fmt: skip
        log.write_text("\n".join(lines))  # without a line end, which may not pass for a space
        found = arrays(load_clicks(str(log), cache_dir=tmp_path, min_count=1))
        first = first or found
        for one, other in zip(first, found, strict=True):
            np.testing.assert_array_equal(one, other)


def test_hexadecimal_numbers_are_read_at_any_place_of_a_longer_array():
    texts = ["00000000", "ffffffff", "", "AbC", "g", "123456789", "é", "12 3", "\0" * 8, "1", "", "/:@`G"]
    good = [bool(re.fullmatch("[0-9a-fA-F]{0,8}", text)) for text in texts]
    for start in range(len(texts) + 1):
        numbers, wrong = hexadecimal(pa.array(texts, pa.string())[start:])
        assert wrong.tolist() == [not each for each in good[start:]] and numbers.dtype == np.uint32
        expected = [int(text or "0", 16) for text, fits in zip(texts, good, strict=True) if fits]
        assert numbers[~wrong].tolist() == expected[sum(good[:start]) :]


def test_text_of_every_kind_and_parquet_prepare_to_the_same(prepare, frame, tmp_path, monkeypatch):
    table = frame()
    table.loc[7, "unused"] = "two\nlines"
    first = prepare(table)
    content = (tmp_path / "a.csv").read_bytes()
    table.to_csv(tmp_path / "b.tsv", index=False, sep="\t")
    table.astype({"price": int, "age": float}).to_parquet(tmp_path / "d.parquet")
    assert_same(first, prepare(None, name="b.tsv"))
    assert_same(first, prepare(None, name="d.parquet"))
    assert_same(first, prepare(gzip.compress(content), name="c.csv"))
    assert_same(first, prepare(b"\xef\xbb\xbf" + content.replace(b"\n", b"\r\n"), name="e.csv"))
    assert_same(first, prepare(content.replace(b"\n", b"\r"), name="f.csv"))
    spaced = content.replace(b",", b", ").replace(b'""quotes"", ', b'""quotes"",').replace(b"unused", b'"unused"')
    assert_same(first, prepare(spaced, name="s.csv"))
    assert_same(first, prepare(content.replace(b'",', b'" , '), name="s2.csv"))
    twice = b"\n".join(line + b",5,,5" for line in content.split(b"\n") if line)
    assert_same(first, prepare(twice.replace(b"two,5,,5", b"two").replace(b"city,5,,5", b"city,x,,x"), name="t.csv"))
    text = table.assign(unused="a").to_csv(index=False).replace(",", "::").encode()
    assert_same(first, prepare(text, 'separator = "::"', name="w.dat"))
    headless = b"\xef\xbb\xbf" + content.partition(b"\n")[2]
    assert_same(first, prepare(headless, f"names = {list(table.columns)}", name="g.csv"))
    monkeypatch.setattr(columns, "BLOCK_BYTES", 100)  # some cuts would be inside quotes
    assert_same(first, prepare(content, name="h.csv"))


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
    (days / "day_2.gz").write_bytes(b"")  # as a download that was cut off leaves it
    with pytest.raises(DataError, match="empty") as error:
        load_clicks(str(days), cache_dir=tmp_path)
    assert error.value.file == days / "day_2.gz"


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


def test_missing_values_are_the_mean_and_a_category_and_buckets_hold_equal_numbers_of_rows(prepare, frame):
    table = frame(2000)
    table.loc[:99, "price"] = "?"
    table.loc[:99, "city"] = ""
    log = prepare(table, "bucketise = { price = 5 }")
    assert log.categorical_names == ["city", "price (bucket)"]
    assert log.table_rows == (5, 6)  # unknown, three cities, missing; missing, five buckets
    assert (arrays(log)[0][:, 0] == 0).sum() == 100
    counts = np.bincount(log.split("train").categorical[:, 1, 0], minlength=6)
    assert counts[1:] == pytest.approx(counts[1:].mean(), rel=0.03)  # ties on whole numbers
    assert 0 < counts[0] <= 100


def test_numbers_of_parquet_are_missing_or_equal_where_those_of_a_text_are(prepare, frame, tmp_path):
    rng, schema = np.random.default_rng(1), prepare.schema.replace('["?"]', '["-1"]')
    table = frame().assign(city=rng.choice([1, 2**40 + 1, 10**12], 200))
    table.loc[::5, ["price", "city"]] = ["-1", -1]
    first = prepare(table, schema=schema)
    assert not np.array_equal(arrays(first)[0], arrays(prepare(table))[0])  # there -1 is a number
    typed = pa.Table.from_pandas(table.astype({"price": int, "age": float})).drop("city")
    floats = table["city"].where(table["city"] >= 0).to_numpy(dtype=float)  # NaN, which polars keeps apart from null
    own = {
        "city": pa.array(floats),
        "own": pa.array(np.arange(200) % 2 == 0),
        "paid": pa.array([1.0, 0, np.nan, 1] * 50),
    }
    for name, values in own.items():
        typed = typed.append_column(name, values)
    pq.write_table(typed, tmp_path / "b.parquet")
    assert_same(first, prepare(None, schema=schema, name="b.parquet"))
    truths = prepare(None, schema=schema.replace('["price", "age"]', '["own"]'), name="b.parquet")
    assert len(np.unique(arrays(truths)[0])) == 2
    schema = schema.replace('"clicked", positive = ["yes"], negative = ["no"]', '"paid", positive = ["1"]')
    log = prepare(None, schema=schema, name="b.parquet", on_bad_row="skip")
    assert (log.info["skipped"]["rows"], len(arrays(log)[2])) == (50, 150)  # NaN is no negative label


def test_long_tails_can_be_logarithms_and_integers_may_be_beyond_a_float(prepare, frame, tmp_path):
    table = frame()
    found = prepare(table, 'log = ["price"]\nsplit = { last_rows = 50 }').split("test").dense[:, 0]
    assert np.corrcoef(found, signed_log(table["price"][150:].astype(float)))[0, 1] == pytest.approx(1, abs=1e-6)
    table.loc[20, "price"] = "1e200"  # a wide spread is then no fault
    assert prepare(table, 'log = ["price"]').info["rows"] == 200
    table = frame(40).assign(price=1_760_000_000_000_000_001 + 10**9 * np.arange(40))  # nanoseconds
    table.astype({"age": float}).to_parquet(tmp_path / "a.parquet")
    dense = prepare(None, "split = { last_rows = 4 }", name="a.parquet").split("test").dense
    assert np.allclose(np.diff(dense[:, 0]), np.diff(dense[:, 0])[0], atol=1e-6) and dense[0, 0] > 1


@pytest.mark.parametrize(("first", "block_bytes"), [("", 10), ("", 2**22), ("-1", 2**22), ("1e8", 2**22)])
def test_large_numbers_keep_their_differences_whatever_comes_first(prepare, frame, monkeypatch, first, block_bytes):
    monkeypatch.setattr(columns, "BLOCK_BYTES", block_bytes)  # of 10 bytes: the first block has no price at all
    log = prepare(frame().assign(price=[first, *map(str, 1e7 + np.arange(199) / 4)]), "bucketise = { price = 50 }")
    dense, categorical, _ = arrays(log)
    assert len(np.unique(dense[:, 0])) == 200 and len(np.unique(categorical[:, 1])) >= 50


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
    said, packed = [], tmp_path / "packed.gz"
    packed.write_bytes(gzip.compress(generated.read_bytes() * 4))
    load_clicks(str(packed), cache_dir=tmp_path, progress=lambda *words: said.append(words))
    rows = re.search(r"about ([0-9,]+) rows: .* of disk", said[0][1])[1]
    assert int(rows.replace(",", "")) == pytest.approx(12_000, rel=0.15)
    fractions = [fraction for fraction, _ in said]
    assert fractions == sorted(fractions) and fractions[0] == 0


def test_a_counter_of_values_forgets_only_rare_ones_and_only_beyond_its_capacity(monkeypatch):
    monkeypatch.setattr("labkit.data.clicks.prepare.MERGE_AT", 200)
    rare = np.random.default_rng(0).integers(1000, 2**32, 20_000).astype(np.uint32)
    values = np.concatenate([rare, np.repeat(np.arange(20, dtype=np.uint32), 500)])
    for capacity in (1000, 10**6):
        counter = ValueCounter(capacity)
        for block in np.array_split(np.random.default_rng(1).permutation(values), 100):
            counter.add(block)
        found = dict(zip(*(part.tolist() for part in counter.counts()), strict=True))
        assert [found[value] for value in range(20)] == pytest.approx([500] * 20, rel=0.05)
        assert len(found) == len(np.unique(values)) if capacity > len(values) else len(found) <= capacity


def test_hashing_fills_the_rows_evenly_but_row_0_and_scrambling_gives_no_two_values_one_name():
    values = np.arange(100_000, dtype=np.uint32)
    counts = np.bincount(hashed_rows(values, 11), minlength=11)
    assert counts[0] == 0
    assert counts[1:] == pytest.approx(10_000, abs=500)  # five standard deviations
    assert len(np.unique(scramble(values))) == 100_000


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of resident memory from /proc")
def test_memory_does_not_grow_with_the_file(prepare, frame, tmp_path):
    """Preparing 64 times the rows takes no more memory, though every text is another: what grows is on disk."""
    program = """
import re, sys
from pathlib import Path
from labkit.data.clicks import columns, load_clicks, prepare
prepare.ROWS_AT_ONCE, columns.BLOCK_BYTES, prepare.MERGE_AT, prepare.COUNTED_VALUES = 1024, 2**18, 2**12, 2**15
load_clicks(sys.argv[1], schema=Path(sys.argv[2]), cache_dir=Path(sys.argv[3]), max_rows_per_table=1000)
print(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
"""
    schema, peaks = tmp_path / "schema.toml", []
    schema.write_text(prepare.schema.replace('["city"]', '["city", "unused"]'))
    for rows in (3000, 192_000):
        path = tmp_path / f"{rows}.csv"
        frame(rows).assign(city=range(rows), unused=range(rows), long="-" * 200).to_csv(path, index=False)
        commands = [[sys.executable, "-c", program, path, schema, tmp_path / str(each)] for each in range(2)]
        peaks.append(1024 * min(int(subprocess.check_output(command)) for command in commands))  # less of chance
    grown_bytes = peaks[1] - peaks[0]
    # 46 MB of text. The allocators settle some MB above the small file's peak; a copy of the text, or the texts of
    # the categories (384,000, of over 100 bytes each in Python), would be above the limit.
    assert grown_bytes < 30e6, f"{grown_bytes / 1e6:.1f} MB more"


RATINGS = """
label = {{ column = "rating", at_least = {} }}
{}
min_count = 1
"""


def test_a_table_of_names_or_numbers_alone_has_a_constant_for_the_others_and_a_label_can_be_a_number(prepare):
    rows = 300
    table = pd.DataFrame({"user": range(rows), "age": np.arange(rows) % 50, "rating": np.arange(rows) % 10 / 2})
    names = prepare(table, schema=RATINGS.format(4, 'categorical = ["user"]'))
    assert (names.dense_names, len(names.table_rows)) == (["constant"], 1) and not names.split("train").dense.any()
    numbers = prepare(table, schema=RATINGS.format(4, 'dense = ["age"]'))
    assert (numbers.categorical_names, numbers.table_rows) == (["constant"], (1,))
    assert not numbers.split("train").categorical.any() and numbers.split("train").dense.std() == pytest.approx(1)
    for log in (names, numbers):
        label = np.concatenate([log.split(split).label for split in ("train", "validation", "test")])
        assert label.sum() == (table["rating"] >= 4).sum()
    buckets = prepare(table, schema=RATINGS.format(2.5, 'dense = ["age"]\nbucketise = { age = 5 }'))
    assert buckets.categorical_names == ["age (bucket)"]
    with pytest.raises(DataError, match="label 'high' is not a number") as caught:
        prepare([*table.to_csv(index=False).splitlines(), "1,2,high"], schema=RATINGS.format(4, 'dense = ["age"]'))
    assert (caught.value.line, caught.value.field) == (302, "rating")
    with pytest.raises(DataError, match=r"label\.at_least, as in"):
        schema = RATINGS.format(4, 'dense = ["age"]').replace("at_least = 4", 'positive = [">= 4"]')
        prepare(table, schema=schema)


def test_a_folder_of_parts_is_one_table_in_the_order_of_their_numbers(prepare, frame, tmp_path):
    table = frame()
    first = prepare(table, "split = { by_time = true, test = 0.1, validation = 0.1 }")
    typed = table.astype({"price": int, "age": float})
    for number, name in enumerate(["part-2.parquet", "part-10.snappy.parquet", "part-11/a.parquet"]):
        (tmp_path / "made" / name).parent.mkdir(parents=True, exist_ok=True)
        typed[[0, 60, 150, 200][number] : [60, 150, 200][number]].to_parquet(tmp_path / "made" / name)
    typed[:0].to_parquet(tmp_path / "made" / "part-99.parquet")  # as Spark writes them
    (tmp_path / "made" / "_SUCCESS").write_text("")
    (tmp_path / "made" / "README.md").write_text("made")
    schema = {"schema": tmp_path / "schema.toml", "cache_dir": tmp_path / "cache"}
    log = load_clicks(str(tmp_path / "made"), **schema)
    assert_same(first, log)
    assert log.info["notices"] == [f"not read from {tmp_path / 'made'}: README.md"]
    table.to_csv(tmp_path / "made" / "b.csv", index=False)
    with pytest.raises(DataError, match="parts of several formats"):
        load_clicks(str(tmp_path / "made"), **schema)
    days = tmp_path / "city=Rome"
    days.mkdir()
    table.drop(columns="city").to_csv(days / "train-00000-of-00001.csv", index=False)
    with pytest.raises(DataError, match=r"name of the folder \(city=Rome\)"):
        load_clicks(str(days), **schema)
    table.to_csv(days / "train-00000-of-00001.csv", index=False)
    table.to_csv(days / "test-00000-of-00001.csv.gz", index=False)
    assert "test, train" in load_clicks(str(days), **schema).info["notices"][0]
    (days / "test-00000-of-00001.csv.gz").unlink()
    (days / "train-00000-of-00001.csv").rename(days / "train-00001-of-00003.csv")
    (notice,) = load_clicks(str(days), **schema).info["notices"]
    assert "of 3 parts train-… only 1 are there" in notice
    (days / "_delta_log").mkdir()
    with pytest.raises(DataError, match="_delta_log says which parts still belong to this table"):
        load_clicks(str(days), **schema)


def test_one_item_is_made_ahead_in_a_thread_and_an_error_comes_in_its_place():
    made = []

    def items():
        for number in range(3):
            made.append(threading.current_thread())
            yield number
        raise ValueError("the fourth")

    coming, taken = _ahead(items()), []
    with pytest.raises(ValueError, match="the fourth"):
        for item in coming:
            taken.append(item)
            assert len(made) <= len(taken) + 1
    assert taken == [0, 1, 2] and len({*made}) == 1 and made[0] is not threading.current_thread()


def test_nothing_more_is_made_for_a_reader_who_stops():
    made: list[int] = []
    coming = _ahead(made.append(number) or number for number in range(9))
    threads = threading.active_count()
    assert next(coming) == 0
    coming.close()
    assert len(made) <= 2 and threading.active_count() == threads
